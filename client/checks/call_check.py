"""Keyword arguments that verbs do not have: errors that say what to write. Pure.

Java counterpart: none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..errors import ConfigurationError
from .shown import shown

_IN_MESSAGE: Final = "it belongs to the message: send(Message('orders', b'...', {}))"
_CONCURRENCY: Final = "write run(handler, concurrency=20)"
_SECONDS: Final = "write {}(timeout_s=1), in seconds"
_COUNT: Final = "write {}(32)"

_HINTS: Final[Mapping[str, Mapping[str, str]]] = {
    "send": {
        **dict.fromkeys(("value", "body", "msg", "data"), "write send(Message('orders', b'...'))"),
        **dict.fromkeys(("key", "keys"), _IN_MESSAGE.format("keys='order-1'")),
        **dict.fromkeys(("tag", "tags", "routing_key"), _IN_MESSAGE.format("tags='created'")),
        **dict.fromkeys(("headers", "properties"), _IN_MESSAGE.format("properties={'a': 'b'}")),
        **dict.fromkeys(("delay", "countdown", "delay_s"), _IN_MESSAGE.format("delay_s=60")),
        "delay_level": _IN_MESSAGE.format("delay_level=3"),
        "sharding_key": _IN_MESSAGE.format("sharding_key='order-1'"),
        "partition": "write queue=..., with one of producer.queues('orders')",
        **dict.fromkeys(("timeout", "timeout_ms"), "write send(message, timeout_s=5), in seconds"),
        **dict.fromkeys(("retries", "retry_times"), "write Producer(url, retry_times=3)"),
    },
    "run": {
        **dict.fromkeys(
            ("workers", "max_workers", "threads", "thread_count", "max_concurrency"), _CONCURRENCY
        ),
        "prefetch_count": "write PushConsumer(..., pull_threshold_for_queue=100)",
        **dict.fromkeys(("batch_size", "max_records"), "write run(handler, batch=32)"),
        **dict.fromkeys(("timeout", "timeout_s"), "call stop() when it is time to end"),
    },
    "receive": {
        **dict.fromkeys(
            ("timeout", "timeout_s", "timeout_ms"),
            "write `with anyio.fail_after(1):` or `async with asyncio.timeout(1):` around it (in"
            " trocket.blocking receive(timeout_s=1))",
        ),
    },
    "poll": {
        **dict.fromkeys(("timeout", "timeout_ms", "wait_s"), _SECONDS.format("poll")),
        **dict.fromkeys(("max_records", "max_messages", "count"), _COUNT.format("poll")),
    },
    "receive of a SimpleConsumer": {
        **dict.fromkeys(
            ("timeout", "timeout_s", "timeout_ms"), "write receive(wait_s=1), in seconds"
        ),
        **dict.fromkeys(("max", "count", "max_message_num"), _COUNT.format("receive")),
        **dict.fromkeys(
            ("invisible_duration", "visibility_timeout"), "write receive(invisible_s=60)"
        ),
    },
}


def refuse_names(verb: str, unknown: Mapping[str, object]) -> None:
    """Refuse keyword arguments that a verb does not have.

    Raises: ConfigurationError: there is one; the text says what to write.
    """
    for name, value in unknown.items():
        hint = _HINTS[verb].get(name)
        text = f"{verb} has no argument {name}={shown(value)}"
        raise ConfigurationError(f"{text}: {hint}" if hint else f"{text}: leave it out")
