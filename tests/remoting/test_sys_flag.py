"""remoting/sys_flag.py."""

from __future__ import annotations

import pytest

from trocket.remoting import sys_flag

TYPES = (
    sys_flag.TRANSACTION_NOT_TYPE,
    sys_flag.TRANSACTION_PREPARED_TYPE,
    sys_flag.TRANSACTION_COMMIT_TYPE,
    sys_flag.TRANSACTION_ROLLBACK_TYPE,
)


@pytest.mark.parametrize("old", TYPES)
@pytest.mark.parametrize("new", TYPES)
def test_the_transaction_bits_are_replaced_and_the_others_kept(old, new):
    flag = sys_flag.reset_transaction_value(0x331 | old, new)
    assert flag == 0x331 | new
