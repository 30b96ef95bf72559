"""Settings of the name server that a peer may read, and those that it may change at run time.

Both are lists of allowed keys. RocketMQ has a list of forbidden keys, and a wrong name in it
allowed every client to write any file (CVE-2023-37582). No path, address, port or list of
permissions can be set from the wire.

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
"""The keys that UPDATE_NAMESRV_CONFIG may set, with their ranges, which are narrower than the
file's, so that no client can stop the expiry of brokers or make it run continuously."""

SHOWN: Final = frozenset(SETTABLE) | {
    "bindAddress",
    "configStorePath",
    "kvConfigPath",
    "listenPort",
    "serverChannelMaxIdleTimeSeconds",
}
"""The keys that GET_NAMESRV_CONFIG shows."""

BLACK_LIST_REMARK: Final = "Can not update config in black list."
"""RocketMQ's remark for a key that may not be set."""


def show(config: NamesrvConfig) -> bytes:
    """The body of a GET_NAMESRV_CONFIG answer: a line `key=value` for each shown key, sorted."""
    pairs = sorted((key, value) for key, value in to_properties(config) if key in SHOWN)
    return "".join(f"{key}={value}\n" for key, value in pairs).encode()


SETTINGS_SIZE_MAX: Final = 32 * 1024
"""Bytes of an UPDATE_NAMESRV_CONFIG, which take 10 ms. Only ten keys can be set."""


def change(config: NamesrvConfig, body: bytes) -> dict[str, str]:
    """Apply an UPDATE_NAMESRV_CONFIG, completely or not at all.

    Args:
      config: changed in place.
      body: properties text, UTF-8.
    Returns: the changed keys with their new values in the file's form.
    Raises: RequestRefused: NO_PERMISSION: a key is not in SETTABLE; SYSTEM_ERROR: the text is not a
      properties text, or a value has a wrong type or range.
    """
    if len(body) > SETTINGS_SIZE_MAX:
        raise RequestRefused(
            ResponseCode.SYSTEM_ERROR,
            f"the settings have {len(body)} bytes, the limit is {SETTINGS_SIZE_MAX}",
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
    """Set values in a properties file; everything else, including comments, stays as it was.

    Args:
      content: the current file; empty if there is none.
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
    """The key that a line sets; "" for a comment or a malformed line."""
    try:
        entries = parse_properties(line)
    except ConfigError:
        return ""
    return entries[0].key if entries else ""
