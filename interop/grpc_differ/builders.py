"""Parts of requests that many scripts use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ...common.clock import SystemClock
from ...grpc_protocol.enums import ClientType, MessageType
from ..wire_differ.normalise import Normaliser, without
from .call import MAIN, NOTHING, Call, Played, Talk
from .wrong_fields import wrong_fields

EVERYTHING: Final[Mapping[str, Any]] = {"type": 1, "expression": "*"}
OK: Final = 20_000


def resource(name: str) -> dict[str, Any]:
    """The fields of a Resource."""
    return {"name": name}


def in_s(seconds: float) -> Callable[[Played], dict[str, Any]]:
    """A Timestamp: some seconds from now."""

    def at(_: Played) -> dict[str, Any]:
        due_ms = SystemClock().wall_ms() + round(seconds * 1000)
        return {"seconds": due_ms // 1000, "nanos": due_ms % 1000 * 1_000_000}

    return at


def message(topic: str, body: bytes = b"body", **system: Any) -> dict[str, Any]:
    """The fields of a Message; those of its system properties by name, `properties` of the user."""
    usual = {
        "message_id": "01AB",
        "message_type": MessageType.NORMAL,
        "born_timestamp": in_s(0),
    }
    properties = system.pop("properties", NOTHING)
    return {
        "topic": resource(topic),
        "body": body,
        "system_properties": usual | system,
        "user_properties": properties,
    }


def send(name: str, *messages: Mapping[str, Any], **options: Any) -> Call:
    """A SendMessage. Those of delayed and half messages are stored in topics of the broker, where
    their offsets depend on other scripts."""
    hidden = any(
        "delivery_timestamp" in each["system_properties"]
        or each["system_properties"].get("message_type") == MessageType.TRANSACTION
        for each in messages
    )
    if hidden:
        options.setdefault("changes", (without("offset", "answers.0.entries.*"),))
    return Call(name, "SendMessage", {"messages": list(messages)}, **options)


def receive_fields(topic: str, group: str, **changed: Any) -> dict[str, Any]:
    """The fields of a ReceiveMessage that waits for 5 s."""
    usual: dict[str, Any] = {
        "group": resource(group),
        "message_queue": {"topic": resource(topic), "id": -1, "broker": {"name": "broker-a"}},
        "filter_expression": dict(EVERYTHING),
        "batch_size": 32,
        "invisible_duration": {"seconds": 30},
        "long_polling_timeout": {"seconds": 5},
    }
    return usual | changed


def receive(
    name: str,
    topic: str,
    group: str,
    *,
    options: Mapping[str, Any] = NOTHING,
    **changed: Any,
) -> Call:
    """A ReceiveMessage.

    Args:
      options: attributes of the Call, by name.
      changed: fields.
    """
    return Call(name, "ReceiveMessage", receive_fields(topic, group, **changed), **options)


def join(topic: str, group: str, client: str = MAIN) -> tuple[Talk, Call]:
    """A consumer comes, and its group's place in the topic is kept from its first receive on."""
    return (
        Talk(
            f"settings of {client} in {group}",
            (consumer_settings(topic, group),),
            client=client,
            is_compared=False,
        ),
        receive(
            f"first receive of {client} in {group}",
            topic,
            group,
            options={"client": client, "is_compared": False},
        ),
    )


def consumer_settings(
    topic: str,
    group: str,
    kind: ClientType | int = ClientType.SIMPLE_CONSUMER,
    expression: Mapping[str, Any] = EVERYTHING,
    **changed: Any,
) -> dict[str, Any]:
    """The fields of a command with a consumer's settings."""
    entry = {"topic": resource(topic), "expression": dict(expression)}
    usual = {
        "client_type": kind,
        "subscription": {"group": resource(group), "subscriptions": [entry]},
        "request_timeout": {"seconds": 3},
        "user_agent": {"language": 1, "version": "5.2.0", "platform": "p", "hostname": "h"},
    }
    return {"settings": usual | changed}


def producer_settings(*topics: str, **changed: Any) -> dict[str, Any]:
    """The fields of a command with a producer's settings."""
    usual = {
        "client_type": ClientType.PRODUCER,
        "publishing": {"topics": [resource(topic) for topic in topics]},
        "request_timeout": {"seconds": 3},
        "user_agent": {"language": 1, "version": "5.2.0", "platform": "p", "hostname": "h"},
    }
    return {"settings": usual | changed}


def wrong_calls(
    method: str,
    right: Mapping[str, Any],
    left_out: Sequence[str] = (),
    *,
    about: str = "",
    changes: tuple[Normaliser, ...] = (),
    client: str = MAIN,
) -> tuple[Call, ...]:
    """A call of a method for each way in which one of its fields is wrong."""
    before = f"{about}, " if about else ""
    return tuple(
        Call(before + words, method, fields, changes=changes, client=client)
        for words, fields in wrong_fields(f"{method}Request", right, left_out)
    )


def has_messages(count: int) -> Callable[[Sequence[Any]], bool]:
    """Whether the answers of a receive have at least so much messages."""
    return lambda answers: sum(answer.HasField("message") for answer in answers) >= count


def is_code(code: int) -> Callable[[Sequence[Any]], bool]:
    """Whether the first answer has a code."""
    return lambda answers: bool(answers) and answers[0].status.code == code
