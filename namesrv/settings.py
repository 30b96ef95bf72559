"""What of the configuration a peer may see, and what it may change while the name server runs.

Both are lists of what is allowed. RocketMQ has a list of what is forbidden, and a wrong name in it
let anybody write any file (CVE-2023-37582). No path, address, port or list of permissions is ever
set from the wire.

Java counterpart: updateConfig and getConfig of RocketMQ 5.3.3
namesrv/processor/DefaultRequestProcessor.java.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..common.config import ConfigError, configure, decode, parse_properties, to_properties
from ..remoting.errors import RequestRefused
from ..remoting.response_codes import ResponseCode
from .config import NamesrvConfig

ANY: Final = None
"""The range of a setting that is not a number."""

SETTABLE: Final[Mapping[str, tuple[int, int] | None]] = {
    "deleteTopicWithBrokerRegistration": ANY,
    "enableAllTopicList": ANY,
    "enableTopicList": ANY,
    "needWaitForService": ANY,
    "notifyMinBrokerIdChanged": ANY,
    "orderMessageEnable": ANY,
    "returnOrderTopicConfigToBroker": ANY,
    "scanNotActiveBrokerInterval": (100, 60_000),
    "supportActingMaster": ANY,
    "waitSecondsForService": (0, 3_600),
}
"""The keys that UPDATE_NAMESRV_CONFIG may set, with the range that it may set them to: narrower
than the file's, so that nobody stops expiry, or makes it spin, from afar."""

SHOWN: Final = frozenset(SETTABLE) | {
    "bindAddress",
    "configStorePath",
    "kvConfigPath",
    "listenPort",
    "serverChannelMaxIdleTimeSeconds",
}
"""The keys that GET_NAMESRV_CONFIG tells."""

BLACK_LIST_REMARK: Final = "Can not update config in black list."
"""RocketMQ's remark for a key that may not be set."""


def show(config: NamesrvConfig) -> bytes:
    """The body of a GET_NAMESRV_CONFIG answer: a line `key=value` for each shown key, sorted."""
    pairs = sorted((key, value) for key, value in to_properties(config) if key in SHOWN)
    return "".join(f"{key}={value}\n" for key, value in pairs).encode()


SETTINGS_SIZE_MAX: Final = 32 * 1024
"""Bytes of an UPDATE_NAMESRV_CONFIG: 10 ms. There are some ten keys that may be set."""


def change(config: NamesrvConfig, body: bytes) -> dict[str, str]:
    """Carry out an UPDATE_NAMESRV_CONFIG: all of it, or nothing.

    Args:
      config: changed in place.
      body: properties text, UTF-8.
    Returns: the keys that were set with their new values as a file would have them.
    Raises: RequestRefused: NO_PERMISSION for a key that is not in SETTABLE, SYSTEM_ERROR for a
      text that is no properties text, and for a value of a wrong type or range.
    """
    if len(body) > SETTINGS_SIZE_MAX:
        raise RequestRefused(
            ResponseCode.SYSTEM_ERROR,
            f"settings of {len(body)} bytes, at most {SETTINGS_SIZE_MAX} are read",
        )
    try:
        entries = parse_properties(body.decode("utf-8"))
    except (UnicodeDecodeError, ConfigError) as error:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, "string2Properties error") from error
    for entry in entries:
        if entry.key not in SETTABLE:
            remark = f"{BLACK_LIST_REMARK} {entry.key[:80]!r} is not one of: {', '.join(SETTABLE)}"
            raise RequestRefused(ResponseCode.NO_PERMISSION, remark)
    try:
        (changed,), _ = configure(entries, (config,), dict)
    except ConfigError as error:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, error.reason) from error
    keys = {entry.key for entry in entries}
    values = {key: value for key, value in to_properties(changed) if key in keys}
    for key, value in values.items():
        bounds = SETTABLE[key]
        if bounds is not ANY and not bounds[0] <= int(value) <= bounds[1]:
            remark = f"{key} must be in {bounds[0]}..{bounds[1]}, not {value}"
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, remark)
    for field in config.__dataclass_fields__:
        setattr(config, field, getattr(changed, field))
    return values


def edit_properties(content: bytes, values: Mapping[str, str]) -> bytes:
    """A properties file with some values set, and everything else as it was, comments too.

    Args:
      content: the file as it is; empty when there is none.
      values: ASCII text by key.
    """
    lines = decode(content).splitlines()
    left = dict(values)
    kept: list[str] = []
    for line in lines:
        key = _key_of_line(line)
        if key not in values:
            kept.append(line)
        elif key in left:
            kept.append(f"{key}={left.pop(key)}")
    kept += [f"{key}={value}" for key, value in left.items()]
    return "".join(f"{line}\n" for line in kept).encode("latin-1")


def _key_of_line(line: str) -> str:
    """The key that a line sets; "" for a comment, and for a line that cannot be read."""
    try:
        entries = parse_properties(line)
    except ConfigError:
        return ""
    return entries[0].key if entries else ""
