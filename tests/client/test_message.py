"""How messages print: short, as people name them, and without internals."""

from __future__ import annotations

from typing import Any

import pytest

from trocket import Message, Producer, PullConsumer
from trocket.testing import Broker

from .conftest import Play


def test_messages_print_as_people_name_them(
    play: Play, broker: Broker, topic: str, group: str
) -> None:
    async def scenario() -> None:
        async with Producer(broker.url) as sender:
            await sender.send(Message(topic, "x", tags="created", keys="order-1"))
            await sender.send(Message(topic, b"\xff" * 100))
        async with PullConsumer(broker.url, group=group, consume_from_where="first") as consumer:
            consumer.subscribe(topic)
            found: list[Any] = []
            while len(found) < 2:
                found += await consumer.poll()
        assert str(found[0]) == f"<Message {topic}/0@0 tags=created keys=order-1 'x'>"
        start = b"\xff" * 16
        assert repr(found[1]) == f"<Message {topic}/0@1 {start!r}…>"
        assert repr(broker.messages(topic)[0]) == (
            f"<MessageExt {topic}/0@0 tags=created keys=order-1 'x'>"
        )

    play(scenario)


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (Message("orders", "x"), "<Message orders 'x'>"),
        (
            Message("orders", b"x", tags="created", keys=["a", "b"]),
            "<Message orders tags=created keys=a,b 'x'>",
        ),
        (Message("orders", "x" * 100), f"<Message orders '{'x' * 40}'…>"),
        (Message("orders", ("x" * 39 + "é" * 99).encode()), f"<Message orders '{'x' * 39}é'…>"),
        (Message("orders", "é".encode()[:1]), "<Message orders b'\\xc3'>"),
        (Message("orders", {"a": 1}), "<Message orders {'a': 1}>"),
    ],
)
def test_messages_to_send_print_short(message: Message, text: str) -> None:
    assert repr(message) == text
