"""The version numbers that frames carry.

RocketMQ numbers its versions by their place in one list, in which each release stands after its
snapshot: releases are odd, snapshots even. From 4.0.0 to 5.9.9 the list is complete (ten minor
versions of ten patches each), so there the number can be computed:
``213 + 200 * (major - 4) + 20 * minor + 2 * patch``. The older ones stand here by hand, as far as
something compares with them.

Source: the order of MQVersion.Version in rocketmq-common 5.3.3; recordings (407 is 4.9.7, 513 is
5.5.0).
"""

from __future__ import annotations

from typing import Final

_V4_0_0: Final = 213
_PER_MAJOR: Final = 200
_PER_MINOR: Final = 20
_PER_PATCH: Final = 2
HIGHER_VERSION: Final = 612
"""The end of RocketMQ's list: what it takes any greater number for."""


def mq_version(major: int, minor: int, patch: int) -> int:
    """The number of a release.

    Args:
      major: 4 or 5.
      minor: 0 to 9.
      patch: 0 to 9.
    Returns: 213 (4.0.0) to 611 (5.9.9), always odd.
    Raises: ValueError: outside these ranges, where RocketMQ's list follows no rule.
    """
    if major not in (4, 5) or not 0 <= minor <= 9 or not 0 <= patch <= 9:
        raise ValueError(f"no number can be computed for version {major}.{minor}.{patch}")
    return _V4_0_0 + _PER_MAJOR * (major - 4) + _PER_MINOR * minor + _PER_PATCH * patch


def version_name(version: int) -> str:
    """RocketMQ's name of a version number, for people.

    Args:
      version: the number that a header carried; any int.
    Returns: such as "V5_5_0" or "V5_5_0_SNAPSHOT" from 4.0.0 on; "HIGHER_VERSION" beyond the list;
      "version N" before it.
    """
    if version >= HIGHER_VERSION:
        return "HIGHER_VERSION"
    if version < _V4_0_0 - 1:
        return f"version {version}"
    snapshot = version % 2 == 0
    steps = version + snapshot - _V4_0_0
    major, rest = divmod(steps, _PER_MAJOR)
    minor, rest = divmod(rest, _PER_MINOR)
    suffix = "_SNAPSHOT" if snapshot else ""
    return f"V{4 + major}_{minor}_{rest // _PER_PATCH}{suffix}"


V3_0_7_SNAPSHOT: Final = 28
"""From here on a client can be asked to reset its offsets (220)."""
V3_0_11: Final = 37
"""From here on the body of a broker's registration holds filter servers too."""
V3_1_8_SNAPSHOT: Final = 62
"""From here on a consumer can tell its running state (307)."""
V3_4_9: Final = 121
"""From here on a send may carry its own maximum of reconsumptions."""
V4_1_0: Final = mq_version(4, 1, 0)
"""The least broker version with which a pull client dares to filter by SQL."""
V4_9_4: Final = mq_version(4, 9, 4)
"""From here on a client wants map keys of a route quoted."""
V4_9_7: Final = mq_version(4, 9, 7)
V5_0_0: Final = mq_version(5, 0, 0)
"""From here on a compressed registration holds queue mappings too."""
V5_3_1: Final = mq_version(5, 3, 1)
"""Peers above it understand that a connection is going away (GO_AWAY)."""
V5_3_3: Final = mq_version(5, 3, 3)
V5_5_0: Final = mq_version(5, 5, 0)

CURRENT_VERSION: Final = V5_5_0
"""The version whose protocol we speak, and which our frames carry."""
