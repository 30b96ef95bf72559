"""Refusals of a slave, with RocketMQ's remarks."""

from __future__ import annotations

import pytest

from trocket.broker.replication.slave import slave_refusals
from trocket.broker.settings.config import BrokerConfig
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.errors import RequestRefused
from trocket.store.config import BrokerRole

from ...kit import broker_and_client, broker_client, embedded_broker, send_fields
from ..harness import FakeChannel

BUSY = (2, "[REJECTREQUEST]system busy, start flow control for a while")
NO_CHANGE = (
    1,
    (
        "Can't modify topic or subscription group from slave broker, please execute it from "
        "master broker."
    ),
)
NO_END = (11, "Message store is slave mode, so end transaction is forbidden.")
REFUSED = {
    10: BUSY, 310: BUSY, 320: BUSY, 36: BUSY, 324: BUSY, 325: BUSY, 11: BUSY, 361: BUSY,
    200050: BUSY, 200051: BUSY, 200151: BUSY, 200053: BUSY, 200052: BUSY,
    37: NO_END, 323: NO_END,
    17: NO_CHANGE, 18: NO_CHANGE, 215: NO_CHANGE, 200: NO_CHANGE, 225: NO_CHANGE, 207: NO_CHANGE,
    513: NO_CHANGE, 401: NO_CHANGE,
    222: (1, "Can not reset offset in slave broker"),
}  # fmt: skip
RECALL = {370: (11, "recall failed, broker service not available")}
SLAVE = {"broker_role": BrokerRole.SLAVE, "broker_id": 1}


def refusals(**options: bool) -> dict[int, tuple[int, str]]:
    found = {}
    usual = dict.fromkeys((11, 361, 200052, 370), lambda request, channel: None)
    for code, process in slave_refusals(BrokerConfig(broker_id=1, **options), usual).items():
        try:
            process(RemotingCommand(code), FakeChannel())
        except RequestRefused as refused:
            found[int(code)] = (refused.code, refused.remark)
    return found


def test_what_is_refused_and_how() -> None:
    assert refusals() == REFUSED


def test_pulls_are_served_where_the_key_says_so() -> None:
    assert REFUSED.keys() - refusals(slave_read_enable=True).keys() == {11, 361, 200052}


def test_a_recall_is_refused_as_on_a_master_where_there_are_none() -> None:
    assert refusals(recall_message_enable=True) == REFUSED | RECALL


async def test_a_slave_answers_so_and_makes_no_topic() -> None:
    async with broker_and_client(**SLAVE) as (broker, client):
        for code, refusal in REFUSED.items():
            answer = await client.ask(code, send_fields("NEW"), b"x")
            assert (answer.code, answer.remark) == refusal, code
        assert "NEW" not in broker.controller.topics.topic_config_table
        assert broker.controller.store.max_physical_offset == 0


@pytest.mark.parametrize("code", [34, 38, 14, 15, 21, 30, 31, 35, 43, 45, 60, 201, 907])
async def test_a_slave_serves_what_changes_no_message(code: int) -> None:
    """As a master: it may be refused for what it says, but not for whom it came to."""
    async with embedded_broker(**SLAVE) as broker:
        answer = await (await broker.connect()).ask(code, {"topic": "T", "queueId": 0}, b"{}")
        assert (answer.code, answer.remark) not in REFUSED.values()
        assert answer.code != 3


async def test_a_slave_tells_what_is_forbidden_and_does_not_change_it() -> None:
    fields = {"group": "CG", "topic": "T"}
    async with broker_client(**SLAVE) as client:
        answer = await client.ask(353, fields | {"readable": "false"})
        assert (answer.code, answer.remark) == NO_CHANGE
        answer = await client.ask(353, fields)
        assert (answer.code, b'"readable":true' in answer.body) == (0, True)
