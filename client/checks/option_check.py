"""Checks of keyword options: their names, types and ranges, when the object is created. Pure.

Java counterpart: DefaultMQPushConsumerImpl.checkConfig, for the ranges.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from enum import Enum
from inspect import iscoroutinefunction
from math import inf
from os import PathLike
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeGuard

from ...remoting.bodies import ConsumeFromWhere, MessageModel
from ...remoting.body_compression import CompressionType
from ...remoting.cluster_url import is_namespace
from ...remoting.signature import Credentials
from ...remoting.tls_options import TlsOptions
from ..errors import ConfigurationError
from .message_check import SECONDS_SINCE_1970
from .other_names import option_elsewhere
from .shown import shown

SECONDS_MAX: Final = 3600.0
"""Largest value of an option in seconds: a larger one was meant in milliseconds."""
REQUEST_S_MAX: Final = 600.0
"""The same for the time limit of one request or connection, whose defaults are 3 s."""
CONSUME_S_MAX: Final = 7 * 24 * 3600.0
"""The same for a handler: RocketMQ's default is 15 minutes, and some work for days."""
NEAR: Final = 0.7
"""Likeness from which on a name is taken for a misspelled one; `difflib` has 1 for equal ones."""


class _Kind(NamedTuple):
    """The values that an option takes.

    Attributes:
      hint: what to give, for the error text.
      accepts: whether a value is one of them, after `read`.
      read: converts a value that may be given in another form; returns others as they are.
      more: more for the error text about a certain wrong value, or "".
    """

    hint: str
    accepts: Callable[[Any], bool]
    read: Callable[[Any], Any] = lambda value: value
    more: Callable[[str, Any], str] = lambda name, value: ""


def is_int(value: object) -> TypeGuard[int]:
    """Whether it is a whole number; True and False are none."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether it is a number; True and False are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number_of(name: str, value: object) -> str:
    """The line to write for a number that is given as something else."""
    if isinstance(value, timedelta):
        return f"write {name}={value.total_seconds():g}"
    if isinstance(value, str):
        for kind in (int, float):
            try:
                return f"write {name}={kind(value)!r}"
            except ValueError:
                continue
    return ""


def _time_of(name: str, value: object) -> str:
    """The line to write for a time in milliseconds that is given as something else."""
    if isinstance(value, datetime):
        return f"write {name}={int(value.timestamp() * 1000)}"
    if is_number(value) and looks_like_seconds(value):
        return f"that is in seconds since 1970: write {name}={int(value * 1000)}"
    return _number_of(name, value)


def looks_like_seconds(time_ms: float) -> bool:
    """Whether a time is rather in seconds than in milliseconds since 1970."""
    return SECONDS_SINCE_1970[0] <= time_ms < SECONDS_SINCE_1970[1]


def _count(minimum: int) -> _Kind:
    return _Kind(
        f"give an int from {minimum} on",
        lambda value: is_int(value) and value >= minimum,
        more=_number_of,
    )


def _seconds(maximum: float, *, or_zero: bool = False) -> _Kind:
    low = "from 0 on" if or_zero else "above 0"

    def accepts(value: Any) -> bool:
        return is_number(value) and (value >= 0 if or_zero else value > 0) and value <= maximum

    def more(name: str, value: Any) -> str:
        if value == inf:
            return f"at most {maximum:g}"
        if is_number(value) and value > maximum:
            return f"at most {maximum:g}; for milliseconds write {name}={value / 1000:g}"
        return _number_of(name, value)

    return _Kind(f"give a number of seconds {low}", accepts, more=more)


def _member(kind: type[Enum], choices: Mapping[str, Enum]) -> _Kind:
    texts = ", ".join(map(repr, choices))
    names = ", ".join(f"{kind.__name__}.{member.name}" for member in choices.values())

    def read(value: Any) -> Any:
        if isinstance(value, str) and not isinstance(value, kind):
            return choices.get(value.lower()) or kind.__members__.get(value.upper(), value)
        return value

    return _Kind(f"give one of {texts}, or {names}", lambda value: isinstance(value, kind), read)


def _optional(kind: _Kind) -> _Kind:
    return kind._replace(
        hint=f"{kind.hint}, or None", accepts=lambda value: value is None or kind.accepts(value)
    )


def _object(hint: str, *methods: str) -> _Kind:
    """An object with these methods; a class in its place is a frequent mistake."""

    def accepts(value: Any) -> bool:
        return not isinstance(value, type) and all(
            callable(getattr(value, name, None)) for name in methods
        )

    def more(name: str, value: Any) -> str:
        is_class = isinstance(value, type)
        return f"write {name}={value.__name__}(): an object, not its class" if is_class else ""

    return _Kind(hint, accepts, more=more)


def _interceptors(value: Any) -> bool:
    one = _object("", "before_send", "after_send", "before_consume", "after_consume")
    return isinstance(value, list | tuple) and all(map(one.accepts, value))


_PAUSE: Final = _seconds(SECONDS_MAX, or_zero=True)
_SECONDS: Final = _seconds(SECONDS_MAX)
_WAIT: Final = _Kind(
    "give a number of seconds from 0 on; math.inf: without limit",
    lambda value: is_number(value) and value >= 0,
    more=_number_of,
)
_REQUEST: Final = _seconds(REQUEST_S_MAX)
_TIME: Final = _Kind(
    "give an int of milliseconds since 1970",
    lambda value: is_int(value) and value >= 0 and not looks_like_seconds(value),
    more=_time_of,
)
_BOOL: Final = _Kind("give True or False", lambda value: isinstance(value, bool))
_TEXT: Final = _Kind("give a str", lambda value: isinstance(value, str))
_NAMESPACE: Final = _Kind(
    "give a str of letters a-z and A-Z, digits, '|', '_' and '-'",
    lambda value: isinstance(value, str) and is_namespace(value),
)
_TRACE: Final = _Kind(
    "give True, False or the name of a trace topic", lambda value: isinstance(value, bool | str)
)
_FUNCTION: Final = _Kind("give a function", callable)
_PLAIN: Final = _Kind(
    "give a function",
    lambda value: callable(value) and not iscoroutinefunction(value),
    more=lambda name, value: (
        "it is async, and is called where nothing awaits it: remove its `async`"
        if iscoroutinefunction(value)
        else ""
    ),
)
_CREDENTIALS: Final = _Kind(
    'give Credentials("access key", "secret key")', lambda value: isinstance(value, Credentials)
)
_TLS: Final = _Kind(
    "give TlsOptions(...), an ssl.SSLContext, True or False",
    lambda value: isinstance(value, bool | ssl.SSLContext | TlsOptions),
    more=lambda name, value: (
        f"for the file of an authority write {name}=TlsOptions(ca_file={value!r})"
        if isinstance(value, str | Path)
        else ""
    ),
)
_PATH: Final = _Kind(
    "give a path as Path or str",
    lambda value: isinstance(value, Path),
    lambda value: Path(value) if isinstance(value, str | PathLike) else value,
)
_START: Final = _member(
    ConsumeFromWhere,
    {
        "first": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        "last": ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        "timestamp": ConsumeFromWhere.CONSUME_FROM_TIMESTAMP,
    },
)
_MODEL: Final = _member(
    MessageModel,
    {"clustering": MessageModel.CLUSTERING, "broadcasting": MessageModel.BROADCASTING},
)
_COMPRESSION: Final = _member(
    CompressionType,
    {"zlib": CompressionType.ZLIB, "lz4": CompressionType.LZ4, "zstd": CompressionType.ZSTD},
)

_KINDS: Final[Mapping[str, _Kind]] = {
    # ClientOptions
    "instance_name": _optional(_TEXT),
    "namespace": _optional(_NAMESPACE),
    "credentials": _optional(_CREDENTIALS),
    "tls": _optional(_TLS),
    "timeout_s": _REQUEST,
    "connect_timeout_s": _REQUEST,
    "silent_timeout_s": _optional(_REQUEST),
    "wait_for_broker_s": _optional(_WAIT),
    "route_refresh_s": _SECONDS,
    "heartbeat_s": _SECONDS,
    "interceptors": _Kind("give a list of Interceptor objects, such as [Log()]", _interceptors),
    "on_connection": _optional(_PLAIN),
    "dial": _optional(_FUNCTION),
    "wall_ms": _PLAIN,
    # ProducerOptions
    "retry_times": _optional(_count(0)),
    "send_timeout_s": _optional(_SECONDS),
    "retry_when_not_stored_ok": _BOOL,
    "compress_over": _count(0),
    "compression": _COMPRESSION,
    "compression_level": _count(0),
    "message_size_max": _count(1),
    "delay_level_max": _count(1),
    "default_topic_queue_nums": _count(1),
    "send_latency_fault_enable": _BOOL,
    "serializer": _optional(_PLAIN),
    "send_buffer_count_max": _count(1),
    "send_buffer_size_max": _count(1),
    "linger_s": _PAUSE,
    "batch_size_max": _count(1),
    "batch_count_max": _count(1),
    "trace": _TRACE,
    # ConsumerOptions, PushConsumerOptions, PullConsumerOptions, SimpleConsumerOptions
    "consume_from_where": _START,
    "pull_batch_size": _count(1),
    "pull_threshold_for_queue": _count(1),
    "suspend_s": _PAUSE,
    "message_model": _MODEL,
    "is_orderly": _BOOL,
    "consume_timestamp_ms": _optional(_TIME),
    "pull_threshold_size_for_queue": _count(1),
    "consume_concurrently_max_span": _count(1),
    "max_reconsume_times": _optional(_count(-1)),
    "consume_timeout_s": _seconds(CONSUME_S_MAX),
    "suspend_queue_s": _PAUSE,
    "rebalance_s": _SECONDS,
    "persist_offsets_s": _SECONDS,
    "close_timeout_s": _PAUSE,
    "offset_path": _optional(_PATH),
    "strategy": _object("give a strategy, such as AllocateMessageQueueAveragely()", "allocate"),
    "listener": _optional(_object("give a RebalanceListener object", "on_assign", "on_revoke")),
    "rate_limit": _optional(
        _Kind(
            "give a number of messages per second above 0",
            lambda value: is_number(value) and value > 0,
        )
    ),
    "deserializer": _optional(_PLAIN),
    "mode": _Kind('give "pull" or "pop"', lambda value: value in ("pull", "pop")),
    "pop_invisible_s": _SECONDS,
    "pop_batch_size": _count(1),
    "pop_threshold_for_queue": _count(1),
    "pop_extend": _BOOL,
    "auto_commit": _BOOL,
    "auto_commit_s": _SECONDS,
}
"""The kinds of the options."""


def read_options(given: Mapping[str, object], known: Iterable[str]) -> dict[str, Any]:
    """Check the names and values of keyword options, and read values in other forms.

    Args:
      given: the options.
      known: all names there are.

    Returns: the options, with the enum's member for its string, and a Path for a path's.
    Raises: ConfigurationError: a name is unknown (the text has the nearest one), or a value has a
      wrong type or is out of range.
    """
    names = set(known)
    options: dict[str, Any] = {}
    for name, value in given.items():
        if name not in names:
            raise ConfigurationError(_unknown(name, names))
        kind = _KINDS.get(name)
        if kind is not None:
            options[name] = _checked(kind, name, value)
        else:
            options[name] = value
    return options


def check_timeout(name: str, value: object) -> None:
    """Check the time limit of one call, in seconds.

    Raises: ConfigurationError: it is no number, below 0, or so large that it is in milliseconds.
    """
    _checked(_PAUSE, name, value)


def _checked(kind: _Kind, name: str, value: object) -> Any:
    """The value as it was read. Raises: ConfigurationError: it is not of the kind."""
    read = kind.read(value)
    if not kind.accepts(read):
        more = kind.more(name, value)
        text = f"{name} is {shown(value)}: {kind.hint}"
        raise ConfigurationError(f"{text}; {more}" if more else text)
    return read


def _unknown(name: str, known: Iterable[str]) -> str:
    import difflib  # 10 ms that only an error takes

    listed = sorted(known)
    elsewhere = option_elsewhere(name)
    if elsewhere is not None:
        return f"unknown option {name}: {elsewhere}"
    for unit in ("_ms", "_millis", "_milliseconds"):
        in_seconds = f"{name.removesuffix(unit)}_s"
        if name.endswith(unit) and in_seconds in listed:
            return f"unknown option {name}: write {in_seconds}, in seconds"
    if name in _KINDS:
        return f"{name} is an option of another class; known here are {', '.join(listed)}"
    plain = {each.replace("_", ""): each for each in listed}
    same = plain.get(name.replace("_", "").lower())
    nearest = [same] if same else difflib.get_close_matches(name.lower(), listed, n=1, cutoff=NEAR)
    hint = f"the nearest one is {nearest[0]}; " if nearest else ""
    return f"unknown option {name}; {hint}known are {', '.join(listed)}"
