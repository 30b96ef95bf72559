"""The bits of a message's `sys_flag`.

Java counterpart: `MessageSysFlag` (RocketMQ 5.3.3 common/sysflag/MessageSysFlag.java). Pure.

::

    bits 8..10   7            6       5          4         3..2         1     0
    compression  inner batch  unwrap  store IPv6 born IPv6 transaction  tags  compressed
"""

from __future__ import annotations

COMPRESSED = 0x1
MULTI_TAGS = 0x2
TRANSACTION_NOT_TYPE = 0x0
TRANSACTION_PREPARED_TYPE = 0x4
TRANSACTION_COMMIT_TYPE = 0x8
TRANSACTION_ROLLBACK_TYPE = 0xC
TRANSACTION_MASK = 0xC
BORNHOST_V6 = 0x10
STOREHOSTADDRESS_V6 = 0x20
NEED_UNWRAP = 0x40
INNER_BATCH = 0x80
COMPRESSION_TYPE_MASK = 0x700
COMPRESSION_TYPE_SHIFT = 8


def reset_transaction_value(sys_flag: int, transaction_type: int) -> int:
    """The flag with its transaction bits replaced by a TRANSACTION_*_TYPE."""
    return sys_flag & ~TRANSACTION_MASK | transaction_type
