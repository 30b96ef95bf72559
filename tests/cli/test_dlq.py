"""`trocket dlq` against a broker of its own."""

from __future__ import annotations

import pytest

from trocket.blocking import Admin, Producer, PushConsumer
from trocket.client import ConsumeFromWhere, Message
from trocket.testing import Broker

from ..kit.waiting import wait_until
from .conftest import Run

DEADLINE_S = 30.0


@pytest.fixture(scope="module")
def broker(broker: Broker) -> Broker:
    broker.create_topic("Orders", queues=1)
    return broker


@pytest.mark.slow
def test_dead_letters_are_listed_and_sent_again(run: Run, broker: Broker) -> None:
    with (
        Producer(broker.url) as producer,
        PushConsumer(
            broker.url,
            group="billing",
            subscriptions={"Orders": "*"},
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        ) as consumer,
    ):
        for body in ("one", "two"):
            producer.send(Message("Orders", body))
            message = consumer.receive(timeout_s=DEADLINE_S)
            assert message is not None
            message.retry(-1)
    # The name server learns of the dead-letter topic a moment after it is created.
    with Admin(broker.url) as admin:
        wait_until(lambda: len(admin.dead_letters("billing")) == 2)
    listed = run("dlq", "list", "billing", "--json").json_lines
    assert [each["body"] for each in listed] == ["one", "two"]
    second = listed[1]["messageId"]
    assert "--yes" in run("dlq", "resend", "billing").err
    (sent,) = run("dlq", "resend", "billing", "--id", second, "--yes", "--json").json_lines
    assert sent["deadLetterId"] == second
    assert [each.text for each in broker.messages("Orders")] == ["one", "two", "two"]
    assert broker.messages("Orders")[2].unique_key == sent["messageId"]
    assert len(run("dlq", "resend", "billing", "--yes").rows) == 2
    assert run("dlq", "list", "none").status == 1
    assert run("dlq", "resend", "billing", "--id", "other", "--yes").status == 1
