"""Cleaning by an administrator: retention passes, log files and queues of unknown topics."""

from __future__ import annotations

import trio

from ...kit import broker_and_client, send_fields

SEND, CLEAN_QUEUES, CLEAN_TOPICS, DELETE_LOG = 310, 306, 316, 329


async def test_a_pass_begins_at_once(autojump_clock):
    async with broker_and_client() as (broker, client):
        cleaning = broker.controller.store.activity.cleaning
        for code, wanted in ((CLEAN_QUEUES, False), (DELETE_LOG, True)):
            before_s = trio.current_time()
            assert (await client.ask(code, {})).code == 0
            await trio.testing.wait_all_tasks_blocked()
            assert trio.current_time() == before_s
            # The pass that has begun took one of those that 329 asks for.
            assert cleaning.take_pass() is wanted


async def test_queues_of_unknown_topics_go(autojump_clock):
    async with broker_and_client() as (broker, client):
        for topic in ("T", "U"):
            assert (await client.ask(SEND, send_fields(topic), b"x")).code == 0
        assert (await client.ask(CLEAN_TOPICS, {})).code == 0
        store = broker.controller.store
        assert {"T", "U"} <= store.topics().keys()
        # A table that was lost, or restored from an older backup.
        broker.controller.topics.topic_config_table.pop("U")
        assert (await client.ask(CLEAN_TOPICS, {})).code == 0
        assert "T" in store.topics()
        assert "U" not in store.topics()
        assert store.max_offset("T", 0) == 1
