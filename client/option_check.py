"""Checks of keyword options: their names, types and ranges, when the object is created.

Java counterpart: DefaultMQPushConsumerImpl.checkConfig, for the ranges.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, Final, NamedTuple

from ..remoting.bodies import ConsumeFromWhere, MessageModel
from ..remoting.compression import CompressionType
from ..remoting.signature import Credentials
from .core.tls_options import TlsOptions
from .errors import ConfigurationError


class _Kind(NamedTuple):
    """The values that an option takes.

    Attributes:
      hint: what to give, for the error text.
      accepts: whether a value is one of them.
    """

    hint: str
    accepts: Callable[[Any], bool]


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return _is_int(value) or isinstance(value, float)


def _count(minimum: int) -> _Kind:
    return _Kind(
        f"give an int from {minimum} on", lambda value: _is_int(value) and value >= minimum
    )


def _member(kind: type[Enum]) -> _Kind:
    names = ", ".join(f"{kind.__name__}.{name}" for name in kind.__members__)
    return _Kind(f"give one of {names}", lambda value: isinstance(value, kind))


def _optional(kind: _Kind) -> _Kind:
    return _Kind(f"{kind.hint}, or None", lambda value: value is None or kind.accepts(value))


_SECONDS: Final = _Kind(
    "give a number of seconds above 0", lambda value: _is_number(value) and value > 0
)
_PAUSE: Final = _Kind(
    "give a number of seconds from 0 on", lambda value: _is_number(value) and value >= 0
)
_BOOL: Final = _Kind("give True or False", lambda value: isinstance(value, bool))
_TEXT: Final = _Kind("give a str", lambda value: isinstance(value, str))
_TRACE: Final = _Kind(
    "give True, False or the name of a trace topic", lambda value: isinstance(value, bool | str)
)
_FUNCTION: Final = _Kind("give a function", callable)

_KINDS: Final[Mapping[str, _Kind]] = {
    # ClientOptions
    "instance_name": _optional(_TEXT),
    "namespace": _optional(_TEXT),
    "credentials": _optional(
        _Kind("give Credentials(...)", lambda value: isinstance(value, Credentials))
    ),
    "tls": _optional(
        _Kind(
            "give TlsOptions(...), an ssl.SSLContext, True or False",
            lambda value: isinstance(value, bool | ssl.SSLContext | TlsOptions),
        )
    ),
    "timeout_s": _SECONDS,
    "connect_timeout_s": _SECONDS,
    "wait_for_broker_s": _optional(_PAUSE),
    "route_refresh_s": _SECONDS,
    "heartbeat_s": _SECONDS,
    "interceptors": _Kind(
        "give a list of Interceptor objects",
        lambda value: isinstance(value, Sequence) and not isinstance(value, str),
    ),
    "on_connection": _optional(_FUNCTION),
    "dial": _optional(_FUNCTION),
    "wall_ms": _FUNCTION,
    # ProducerOptions
    "retry_times": _optional(_count(0)),
    "send_timeout_s": _optional(_SECONDS),
    "retry_when_not_stored_ok": _BOOL,
    "compress_over": _count(0),
    "compression": _member(CompressionType),
    "compression_level": _count(0),
    "message_size_max": _count(1),
    "delay_level_max": _count(1),
    "default_topic_queue_nums": _count(1),
    "send_latency_fault_enable": _BOOL,
    "serializer": _optional(_FUNCTION),
    "send_buffer_count_max": _count(1),
    "send_buffer_size_max": _count(1),
    "linger_s": _PAUSE,
    "batch_size_max": _count(1),
    "batch_count_max": _count(1),
    "trace": _TRACE,
    # ConsumerOptions, PushConsumerOptions, PullConsumerOptions, SimpleConsumerOptions
    "consume_from_where": _member(ConsumeFromWhere),
    "pull_batch_size": _count(1),
    "pull_threshold_for_queue": _count(1),
    "suspend_s": _PAUSE,
    "message_model": _member(MessageModel),
    "is_orderly": _BOOL,
    "consume_timestamp_ms": _optional(_count(0)),
    "pull_threshold_size_for_queue": _count(1),
    "consume_concurrently_max_span": _count(1),
    "max_reconsume_times": _optional(_count(-1)),
    "consume_timeout_s": _SECONDS,
    "suspend_queue_s": _PAUSE,
    "rebalance_s": _SECONDS,
    "persist_offsets_s": _SECONDS,
    "close_timeout_s": _PAUSE,
    "offset_path": _optional(_Kind("give a Path", lambda value: isinstance(value, Path))),
    "rate_limit": _optional(
        _Kind(
            "give a number of messages per second above 0",
            lambda value: _is_number(value) and value > 0,
        )
    ),
    "deserializer": _optional(_FUNCTION),
    "mode": _Kind('give "pull" or "pop"', lambda value: value in ("pull", "pop")),
    "pop_invisible_s": _SECONDS,
    "pop_batch_size": _count(1),
    "pop_threshold_for_queue": _count(1),
    "pop_extend": _BOOL,
    "auto_commit": _BOOL,
    "auto_commit_s": _SECONDS,
}
"""The kinds of the options that have one; a strategy and a listener are checked by their use."""


def check_options(given: Mapping[str, object], known: Iterable[str]) -> None:
    """Check the names and values of keyword options.

    Args:
      given: the options.
      known: all names there are.

    Raises: ConfigurationError: a name is unknown (the text has the nearest one), or a value has a
      wrong type or is out of range.
    """
    names = set(known)
    for name, value in given.items():
        if name not in names:
            raise ConfigurationError(_unknown(name, names))
        kind = _KINDS.get(name)
        if kind is not None and not kind.accepts(value):
            raise ConfigurationError(f"{name} is {value!r}: {kind.hint}")


def _unknown(name: str, known: Iterable[str]) -> str:
    import difflib  # 10 ms that only an error takes

    listed = sorted(known)
    nearest = difflib.get_close_matches(name.lower(), listed, n=1, cutoff=0.5)
    hint = f"the nearest one is {nearest[0]}; " if nearest else ""
    return f"unknown option {name}; {hint}known are {', '.join(listed)}"
