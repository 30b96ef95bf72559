"""Version numbers in the header of frames.

RocketMQ numbers its versions by their index in one list, in which each release follows its
snapshot: releases are odd, snapshots even. From 4.0.0 to 5.9.9 the list is complete (ten minor
versions of ten patches each), so there the number can be computed:
``213 + 200 * (major - 4) + 20 * minor + 2 * patch``. Of the older ones only those are listed that
are compared with.

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
"""The end of RocketMQ's list; greater numbers count as this one."""


def mq_version(major: int, minor: int, patch: int) -> int:
    """The number of a release.

    Args:
      major: 4 or 5.
      minor: 0 to 9.
      patch: 0 to 9.
    Returns: 213 (4.0.0) to 611 (5.9.9), always odd.
    Raises: ValueError: outside these ranges, where the number cannot be computed.
    """
    if major not in (4, 5) or not 0 <= minor <= 9 or not 0 <= patch <= 9:
        raise ValueError(f"no number can be computed for version {major}.{minor}.{patch}")
    return _V4_0_0 + _PER_MAJOR * (major - 4) + _PER_MINOR * minor + _PER_PATCH * patch


def version_name(version: int) -> str:
    """RocketMQ's name of a version number, for display.

    Args:
      version: the number in a header; any int.
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
"""The first version whose clients can reset their offsets on request (220)."""
V3_0_11: Final = 37
"""The first version whose registration of a broker has filter servers."""
V3_1_8_SNAPSHOT: Final = 62
"""The first version whose consumers report their running state (307)."""
V3_4_9: Final = 121
"""The first version whose sends may have a maximum of reconsumptions."""
V4_1_0: Final = mq_version(4, 1, 0)
"""The first broker version with which a pull client uses SQL filters."""
V4_9_3: Final = mq_version(4, 9, 3)
V4_9_4: Final = mq_version(4, 9, 4)
"""The first version whose clients need quoted map keys in routes."""
V4_9_7: Final = mq_version(4, 9, 7)
V5_0_0: Final = mq_version(5, 0, 0)
"""The first version whose compressed registration has queue mappings."""
V5_3_1: Final = mq_version(5, 3, 1)
"""Later versions support GO_AWAY, which announces that a connection will be closed."""
V5_3_3: Final = mq_version(5, 3, 3)
V5_5_0: Final = mq_version(5, 5, 0)

CURRENT_VERSION: Final = V5_5_0
"""The version of the protocol that we implement, and that our frames carry."""
