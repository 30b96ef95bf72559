"""Messages of kombu as messages of RocketMQ, and back.

The body is kombu's message as JSON, as in kombu's other virtual transports. A message that another
program sent, which is no such JSON, arrives with its body as it is.
"""

from __future__ import annotations

import base64
import binascii
import logging
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

from kombu.utils.json import dumps, loads

from ...client.messages.message import Message, ReceivedMessage

logger = logging.getLogger(__name__)

Payload: TypeAlias = dict[str, Any]
"""kombu's message: body, content-type, content-encoding, headers and properties."""

DELAY_S_MAX: Final = 3 * 24 * 3600 - 60
"""Longest delay that brokers are asked for, in seconds. RocketMQ: timerMaxDelaySec, three days; the
minute is for clocks that differ."""

DELAY_S_MIN: Final = 1.0
"""Shortest delay: Apache's brokers round timers up to the next second."""

REQUEUED: Final = "redelivered"
"""Marks a copy that was sent because a consumer requeued the message."""

_KEY_LENGTH_MAX: Final = 128


def to_message(topic: str, payload: Payload, *, tag: str | None, due_ms: int | None) -> Message:
    """The message to send.

    Its key is the id of Celery's task, so `trocket message` and the Dashboard find it.

    Args:
      tag: the tag; None: none.
      due_ms: when to deliver it, in milliseconds since 1970; None: at once.
    """
    return Message(
        topic,
        dumps(payload),
        tags=tag,
        keys=_keys(payload),
        deliver_at_ms=due_ms,
    )


def _keys(payload: Payload) -> tuple[str, ...]:
    properties = payload.get("properties") or {}
    key = (payload.get("headers") or {}).get("id") or properties.get("correlation_id")
    if isinstance(key, str) and key.isprintable() and " " not in key:
        return (key,) if 0 < len(key) <= _KEY_LENGTH_MAX else ()
    return ()


def due_ms(payload: Payload, now_ms: int) -> int | None:
    """When a broker is to deliver the message, in milliseconds since 1970; None: at once.

    It is the property `delay_seconds` of kombu's publish, or the ETA of a Celery task; the worker
    waits for what is left of a longer ETA than brokers allow.

    Raises: ValueError: `delay_seconds` is no number of seconds from 0 to DELAY_S_MAX.
    """
    delay_s = (payload.get("properties") or {}).get("delay_seconds")
    if delay_s is not None:
        if not isinstance(delay_s, int | float) or not 0 <= delay_s <= DELAY_S_MAX:
            raise ValueError(f"delay_seconds is {delay_s!r}: give 0 to {DELAY_S_MAX} seconds")
        return now_ms + round(delay_s * 1000) if delay_s else None
    eta = (payload.get("headers") or {}).get("eta")
    at_ms = _eta_ms(eta) if isinstance(eta, str) else None
    if at_ms is None or at_ms - now_ms < DELAY_S_MIN * 1000:
        return None
    return min(at_ms, now_ms + DELAY_S_MAX * 1000)


def _eta_ms(eta: str) -> int | None:
    """An ISO time; without a time zone it is UTC. None: it is none, which is the worker's error."""
    try:
        at = datetime.fromisoformat(eta)
    except ValueError:
        return None
    return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def from_message(message: ReceivedMessage, queue: str, tag: str) -> Payload:
    """kombu's message of one that was received.

    Args:
      queue: the queue that it was received for.
      tag: the delivery tag of this delivery. That of the publisher would be the same for each
        queue, and for each delivery.
    """
    payload = _read(message.body)
    if payload is None:
        payload = _foreign(message)
    properties = payload["properties"]
    properties["delivery_tag"] = tag
    info = properties.setdefault("delivery_info", {"exchange": "", "routing_key": queue})
    info["redelivered"] = message.delivery_attempt > 1 or bool(payload.pop(REQUEUED, False))
    return payload


def again(payload: Payload) -> Payload:
    """The payload to send when a consumer requeues a message: without its delay, which is over."""
    properties = {k: v for k, v in payload["properties"].items() if k != "delay_seconds"}
    return {**payload, "properties": properties, REQUEUED: True}


def _read(body: bytes) -> Payload | None:
    try:
        payload = loads(body)
    except (ValueError, binascii.Error):
        return None
    is_ours = isinstance(payload, dict) and isinstance(payload.get("properties"), dict)
    return payload if is_ours and "body" in payload else None


def _foreign(message: ReceivedMessage) -> Payload:
    return {
        "body": base64.b64encode(message.body).decode(),
        "content-type": "application/octet-stream",
        "content-encoding": "binary",
        "headers": message.user_properties,
        "properties": {"body_encoding": "base64", "correlation_id": message.message_id},
    }


def is_expired(payload: Payload, born_ms: int, now_ms: int) -> bool:
    """Whether the time to live of kombu's publish (`expiration`) is over.

    Args:
      born_ms: when it was sent, in milliseconds since 1970, by the producer's clock.
      now_ms: the present time.
    """
    expiration = payload["properties"].get("expiration")
    try:
        return expiration is not None and born_ms + float(expiration) <= now_ms
    except (TypeError, ValueError):
        logger.warning("the expiration %r of a message is no number: it is ignored", expiration)
        return False
