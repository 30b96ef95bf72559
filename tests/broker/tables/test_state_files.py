"""Saving off the loop: others are served meanwhile, and nothing is answered too early."""

from __future__ import annotations

import threading

import trio
import trio.testing

from trocket.common.clock import SystemClock
from trocket.disk.memory_disk import MemoryDisk
from trocket.remoting.bodies import SubscriptionGroupConfig

from ...kit import Client, broker_client, embedded_broker, pull_fields, send_fields

SEND, PULL = 310, 11
OFFSETS = "/store/config/consumerOffset.json"
WAIT_S = 5


class GatedDisk(MemoryDisk):
    """A slow disk: saving `gated` waits until `gate` is open."""

    def __init__(self, gated: str) -> None:
        super().__init__()
        self.threaded = True
        self.gated = gated
        self.gate = threading.Event()
        self.reached = threading.Event()

    def rename(self, source: str, target: str) -> None:
        if target.endswith(self.gated):
            self.reached.set()
            assert self.gate.wait(WAIT_S)
        super().rename(source, target)


async def reached(disk: GatedDisk) -> None:
    assert await trio.to_thread.run_sync(disk.reached.wait, WAIT_S)


async def test_while_a_new_topic_is_saved_others_are_served_and_its_sender_waits() -> None:
    disk = GatedDisk("topics.json")
    async with embedded_broker(disk, clock=SystemClock()) as broker:
        sender, late_sender = await broker.connect(), await broker.connect()
        other = await broker.connect()
        disk.gate.set()
        await sender.ask(SEND, send_fields("Old"), b"old")
        disk.gate.clear()
        disk.reached.clear()
        answers: list[int] = []

        async def send_new(client: Client) -> None:
            answers.append((await client.ask(SEND, send_fields("New"), b"new")).code)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send_new, sender)
            await reached(disk)
            nursery.start_soon(send_new, late_sender)
            await trio.testing.wait_all_tasks_blocked()
            assert (await other.ask(PULL, pull_fields("Old"))).code == 0
            assert (await other.ask(SEND, send_fields("Old"), b"old")).code == 0
            assert b"New" not in disk.contents["/store/config/topics.json"]
            assert answers == []
            disk.gate.set()
        assert answers == [0, 0]
        assert b"New" in disk.contents["/store/config/topics.json"]


async def test_while_one_file_waits_for_the_disk_another_is_saved() -> None:
    disk = GatedDisk("topics.json")
    async with embedded_broker(disk, clock=SystemClock()) as broker:
        sender, admin = await broker.connect(), await broker.connect()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sender.ask, SEND, send_fields("New"), b"new")
            await reached(disk)
            group = SubscriptionGroupConfig(group_name="g")
            assert (await admin.ask(200, {}, group.to_body())).code == 0
            assert b'"g"' in disk.contents["/store/config/subscriptionGroup.json"]
            disk.gate.set()


async def test_offsets_are_saved_off_the_loop() -> None:
    disk = GatedDisk("consumerOffset.json")
    options = {"clock": SystemClock(), "flush_consumer_offset_interval": 10}
    async with broker_client(disk, **options) as client:
        await client.ask(SEND, send_fields(), b"x")
        await client.ask(PULL, pull_fields(sysFlag=1 | 4, commitOffset=1))
        await reached(disk)
        assert (await client.ask(PULL, pull_fields())).code == 0
        disk.gate.set()
    assert b'"T@CG":{\n\t\t\t0:1' in disk.contents[OFFSETS]


async def test_offsets_that_could_not_be_saved_are_saved_later() -> None:
    disk = MemoryDisk()
    failed = trio.Event()

    def fault(name: str, path: str) -> OSError | None:
        if path.startswith(OFFSETS) and not failed.is_set():
            failed.set()
            return OSError(5, "")
        return None

    disk.fault = fault
    async with broker_client(disk, flush_consumer_offset_interval=10) as client:
        await client.ask(SEND, send_fields(), b"x")
        await client.ask(PULL, pull_fields(sysFlag=1 | 4, commitOffset=1))
        await failed.wait()
    assert b'"T@CG":{\n\t\t\t0:1' in disk.contents[OFFSETS]


async def test_a_topic_that_could_not_be_saved_is_saved_without_another_change(
    autojump_clock: object,
) -> None:
    """Or a broker that is killed does not know a topic any more whose messages it has."""
    disk = MemoryDisk()
    topics = "/store/config/topics.json"
    fails = True
    disk.fault = lambda name, path: OSError(5, "") if fails and path.startswith(topics) else None
    async with broker_client(disk) as client:
        assert (await client.ask(SEND, send_fields("New"), b"new")).code == 14
        await trio.sleep(3)
        assert topics not in disk.contents
        fails = False
        await trio.sleep(3)
        assert b"New" in disk.contents[topics]
        assert (await client.ask(SEND, send_fields("New"), b"new")).code == 0
