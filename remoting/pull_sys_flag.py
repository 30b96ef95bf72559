"""The bits of a pull's `sysFlag`.

Java counterpart: `PullSysFlag` (RocketMQ 5.3.3 common/sysflag/PullSysFlag.java). Pure.
"""

from __future__ import annotations

from typing import Final

COMMIT_OFFSET: Final = 0x1
"""`commitOffset` counts: so far the group has consumed the queue."""
SUSPEND: Final = 0x2
"""The pull may be held where there is nothing for it."""
SUBSCRIPTION: Final = 0x4
"""The pull brings its subscription along; else it is the one of the group's heartbeat."""
CLASS_FILTER: Final = 0x8
"""A filter server decides which messages the consumer gets."""
