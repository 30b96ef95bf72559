"""An exception of a background service that was not a StoreError ended the process."""

from __future__ import annotations

import logging
import re
from itertools import pairwise
from pathlib import Path

import pytest
import trio
import trio.testing

from trocket.broker.waiting.due_task import DueTask
from trocket.common.supervision import (
    ENDS_PROCESS,
    PAUSE_S_MAX,
    FailureLog,
    Supervisor,
    split_fatal,
)
from trocket.common.topic_names import SCHEDULE_TOPIC
from trocket.store.config import FlushDiskType
from trocket.store.message_store import GetMessageResult
from trocket.store.status import PutResult
from trocket.store.writing.flush import FlushService
from trocket.store.writing.inner_message import InnerMessage

from ..kit import broker_and_client, embedded_broker, send_fields
from ..store.support import open_store, put

ROOT = Path(__file__).resolve().parent.parent.parent
logger = logging.getLogger("trocket.tests")

SEND = 310


async def test_a_service_that_fails_runs_again(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    began: list[float] = []

    async def fail() -> None:
        began.append(trio.current_time())
        if len(began) < 20:
            raise RuntimeError("bug")
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        Supervisor(nursery, logger).start_soon("the test", fail)
        await trio.sleep(200)
        assert len(began) == 20
        nursery.cancel_scope.cancel()
    pauses = [later - earlier for earlier, later in pairwise(began)]
    assert pauses[0] < 1
    assert max(pauses) == pytest.approx(PAUSE_S_MAX)
    lines = [record for record in caplog.records if "the test failed" in record.getMessage()]
    assert len(lines) == 1  # in a minute of real time
    assert lines[0].exc_info


@pytest.mark.parametrize(
    "error",
    [
        OSError("bug"),
        ExceptionGroup("of a nursery", [KeyError("bug"), ExceptionGroup("", [ValueError("bug")])]),
    ],
)
async def test_groups_of_errors_are_no_reason_to_end(
    autojump_clock: trio.testing.MockClock, error: Exception
) -> None:
    async def fail() -> None:
        raise error

    async with trio.open_nursery() as nursery:
        Supervisor(nursery, logger).start_soon("the test", fail)
        await trio.sleep(10)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("kind", [each for each in ENDS_PROCESS if each is not trio.Cancelled])
async def test_what_is_listed_ends_the_process(kind: type[BaseException]) -> None:
    async def fail() -> None:
        raise BaseExceptionGroup("of a nursery", [ValueError("bug"), kind("end")])

    with pytest.raises(BaseExceptionGroup) as caught:
        async with trio.open_nursery() as nursery:
            Supervisor(nursery, logger).start_soon("the test", fail)
    fatal, other = split_fatal(caught.value)
    assert isinstance(fatal, BaseExceptionGroup)
    assert other is None


async def test_a_cancellation_among_other_errors_stops_the_service(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def fail_when_cancelled() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise RuntimeError("bug")

    async def run() -> None:
        async with trio.open_nursery() as inner:
            inner.start_soon(fail_when_cancelled)
            inner.start_soon(trio.sleep_forever)

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            Supervisor(nursery, logger).start_soon("the test", run)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()


async def test_an_error_before_the_start_is_told_to_the_starter() -> None:
    async def fail(*, task_status: trio.TaskStatus[None]) -> None:
        raise OSError("the address is taken")

    with pytest.raises(ExceptionGroup) as caught:
        async with trio.open_nursery() as nursery:
            await Supervisor(nursery, logger).start("the test", fail)
    assert "the address is taken" in str(caught.value.exceptions[0])


def test_a_failure_that_repeats_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    now_s = [1000.0]
    failures = FailureLog(logger, now_s=lambda: now_s[0])
    for _ in range(500):
        failures.note("the test", "It goes on", KeyError("bug"))
    now_s[0] += 61
    failures.note("the test", "It goes on", KeyError("bug"))
    assert len(caplog.records) == 2
    assert "499 more" in caplog.records[1].getMessage()


def test_operators_read_the_same_list() -> None:
    text = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    section = text.partition("## What ends the process")[2].partition("\n## ")[0]
    for kind in ENDS_PROCESS:
        assert re.search(rf"\b{kind.__name__}\b", section), kind


async def test_what_is_due_is_tried_again_after_any_error(
    autojump_clock: trio.testing.MockClock,
) -> None:
    tries: list[float] = []

    def work() -> float:
        tries.append(trio.current_time())
        if len(tries) < 4:
            raise IndexError("bug")
        return 1_000.0

    async with trio.open_nursery() as nursery:
        nursery.start_soon(DueTask(work, failing="the test is done later").run)
        await trio.sleep(3)
        assert len(tries) >= 4
        nursery.cancel_scope.cancel()


async def test_a_delayed_message_behind_one_that_fails_is_delivered(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of another level; and the one that failed is delivered when it fails no more."""
    async with broker_and_client() as (broker, client):
        schedule, store = broker.controller.schedule, broker.controller.store
        get_message = store.get_message

        def fail_level_1(topic: str, queue_id: int, *arguments: int) -> GetMessageResult:
            if (topic, queue_id) == (SCHEDULE_TOPIC, 0):
                raise IndexError("bug")
            return get_message(topic, queue_id, *arguments)

        monkeypatch.setattr(store, "get_message", fail_level_1)
        for level in (1, 2):
            fields = send_fields(i=f"UNIQ_KEY\x01{level}\x02DELAY\x01{level}\x02")
            assert (await client.ask(SEND, fields, b"body")).code == 0
        await trio.sleep(30)
        assert schedule.delivered == 1
        assert store.max_offset("T", 0) == 1  # not once more with each try
        monkeypatch.undo()
        await trio.sleep(30)
        assert schedule.delivered == 2
        assert store.max_offset("T", 0) == 2


@pytest.mark.parametrize("failing", [b"first", b"second", b"third"])
async def test_a_delayed_message_that_fails_among_others_repeats_none(
    failing: bytes, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are due at once and are stored together; those before it are delivered once."""
    async with broker_and_client(native=None) as (broker, client):
        schedule, store = broker.controller.schedule, broker.controller.store
        put = store.put

        def fail(message: InnerMessage, tags_code: int) -> PutResult:
            if message.topic == "T" and message.body == failing:
                raise IndexError("bug")
            return put(message, tags_code)

        monkeypatch.setattr(store, "put", fail)
        bodies = [b"first", b"second", b"third"]
        for body in bodies:
            fields = send_fields(i="UNIQ_KEY\x01K\x02DELAY\x011\x02")
            assert (await client.ask(SEND, fields, body)).code == 0
        await trio.sleep(30)
        assert schedule.delivered == store.max_offset("T", 0) == bodies.index(failing)
        monkeypatch.undo()
        await trio.sleep(30)
        assert schedule.delivered == store.max_offset("T", 0) == 3


async def test_an_fsync_that_could_not_begin_is_done_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a free thread: the files still count as not synced."""
    store = open_store()
    put(store)
    store.commit()
    synced: list[int] = []
    sync = FlushService._sync
    monkeypatch.setattr(
        FlushService, "_sync", lambda self, files: (synced.append(len(files)), sync(self, files))
    )

    def no_thread(self: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr("trocket.store.writing.flush.SyncThread.start", no_thread)
        with pytest.raises(RuntimeError):
            await store.flusher.flush_in_thread(threaded=True)
    assert store.flusher.flushed_offset == 0
    await store.flusher.flush_in_thread(threaded=False)
    assert synced == [1]
    assert store.flusher.flushed_offset == store.max_physical_offset
    store.close()


async def test_a_half_message_that_waits_for_its_fsync_is_not_given_up(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with embedded_broker(
        flush_disk_type=FlushDiskType.SYNC_FLUSH,
        transaction_time_out=1_000,
        transaction_check_interval=1_000,
    ) as broker:
        flusher, transactions = broker.controller.store.flusher, broker.controller.transactions
        client = await broker.connect()
        released, flush = trio.Event(), flusher.flush_in_thread

        async def slow(*, threaded: bool) -> None:
            await released.wait()
            await flush(threaded=threaded)

        monkeypatch.setattr(flusher, "flush_in_thread", slow)
        fields = send_fields(f=4, i="UNIQ_KEY\x01K\x02TRAN_MSG\x01true\x02PGROUP\x01PG\x02")
        codes: list[int] = []

        async def send() -> None:
            codes.append((await client.ask(SEND, fields, b"body")).code)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            await trio.sleep(4)
            released.set()
        assert codes == [0]
        assert len(transactions.open) == 1
