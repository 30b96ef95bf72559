"""A topic that a send has made a moment before the master dies.

The message is on the slave when it is answered; the topic's configuration comes by a request of its
own, and may have come too late. The slave's start as a master makes the topic from its queues.
"""

from __future__ import annotations

from trocket.store.config import BrokerRole

from ...kit import bodies, send_fields
from ..group import group
from .test_promotion import MASTER, SEND, pair


async def test_what_was_answered_ok_is_there_although_the_slave_did_not_know_its_topic(
    autojump_clock,
):
    async with group() as made:
        master, slave = await pair(made, broker_role=BrokerRole.SYNC_MASTER)
        client = await master.connect()
        answer = await client.ask(SEND, send_fields("New"), b"x")
        await master.kill()
        assert answer.code == 0
        assert slave.running.store.max_offset("New", 0) == 1
        assert "New" not in slave.running.topics.topic_config_table
        await slave.stop()
        await slave.start(**MASTER)
        client = await slave.connect()
        assert await bodies(client, "New") == [b"x"]
        answer = await client.ask(SEND, send_fields("New"), b"y")
        assert answer.ext_fields["queueOffset"] == "1"
        assert await bodies(client, "New") == [b"x", b"y"]
