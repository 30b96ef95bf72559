"""Bits of a pull's `sysFlag`.

Java counterpart: `PullSysFlag` (RocketMQ 5.3.3 common/sysflag/PullSysFlag.java). Pure.
"""

from __future__ import annotations

from typing import Final

COMMIT_OFFSET: Final = 0x1
"""`commitOffset` is the group's consumed offset, and is to be committed."""
SUSPEND: Final = 0x2
"""The pull may be held if there is no message for it."""
SUBSCRIPTION: Final = 0x4
"""The pull has its subscription; otherwise that of the group's heartbeat is used."""
CLASS_FILTER: Final = 0x8
"""A filter server filters the messages."""
