"""The stores of the state: what both promise, and what each does with damage and lost answers."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
import trio

from trocket.controller.broker_set import BrokerSet, Replica
from trocket.controller.etcd_gateway import Account
from trocket.controller.file_store import FileStore
from trocket.controller.state_store import (
    NO_REVISION,
    NOTHING,
    Candidate,
    ConflictError,
    LeaseLostError,
    StateError,
    StateStore,
    UnavailableError,
    UnreadableError,
    from_tree,
    to_tree,
)
from trocket.disk.errors import CorruptRecordError
from trocket.disk.json_config import sealed, unsealed
from trocket.disk.memory_disk import MemoryDisk

from .fake_etcd import ENDPOINTS, PREFIX, FakeEtcd

ONE = Candidate("n0", "10.0.0.1:9878")
OTHER = Candidate("n1", "10.0.0.2:9878")
SET = BrokerSet(
    cluster_name="C",
    broker_name="a",
    replicas={1: Replica("h:1", "code 1"), 2: Replica("h:2")},
    in_sync=frozenset({1, 2}),
    in_sync_epoch=2,
    master_id=1,
    master_epoch=1,
)
FILE = "/c/controller.json"


@asynccontextmanager
async def opened(kind: str) -> AsyncIterator[StateStore]:
    async with trio.open_nursery() as nursery:
        store: StateStore
        if kind == "file":
            store = FileStore(MemoryDisk(), "/c")
        else:
            etcd = FakeEtcd()
            await nursery.start(etcd.run)
            store = etcd.store()
        await nursery.start(store.run)
        yield store
        nursery.cancel_scope.cancel()


KINDS = pytest.mark.parametrize("kind", ["file", "etcd"])


@KINDS
async def test_a_set_is_replaced_by_its_revision(kind: str, autojump_clock: object) -> None:
    async with opened(kind) as store:
        lease = await store.acquire(ONE)
        assert lease is not None
        assert await store.read() == {}
        assert await store.read_set("a") == NOTHING
        first = await store.swap(lease, "a", NO_REVISION, SET)
        assert await store.read_set("a") == (SET, first)
        with pytest.raises(ConflictError):
            await store.swap(lease, "a", NO_REVISION, SET.with_master(2))
        second = await store.swap(lease, "a", first, SET.with_master(2))
        assert second > first
        named_alike = msgspec.structs.replace(SET, broker_name="aa")
        other = await store.swap(lease, "aa", NO_REVISION, named_alike)
        assert await store.read() == {"a": (SET.with_master(2), second), "aa": (named_alike, other)}
        with pytest.raises(ConflictError):
            await store.swap(lease, "a", first, None)
        assert await store.swap(lease, "a", second, None) == NO_REVISION
        assert await store.read() == {"aa": (named_alike, other)}


@KINDS
async def test_the_leader_is_known(kind: str, autojump_clock: object) -> None:
    async with opened(kind) as store:
        assert await store.leader() is None
        lease = await store.acquire(ONE)
        assert lease is not None
        assert await store.leader() == ONE
        renewed = await store.renew(lease)
        assert renewed.term == lease.term
        await store.release(renewed)
        assert await store.leader() is None


@KINDS
async def test_changes_of_many_sets_at_once(kind: str, autojump_clock: object) -> None:
    async with opened(kind) as store:
        lease = await store.acquire(ONE)
        assert lease is not None
        async with trio.open_nursery() as nursery:
            for number in range(100):
                name = f"set-{number}"
                each = msgspec.structs.replace(SET, broker_name=name)
                nursery.start_soon(store.swap, lease, name, NO_REVISION, each)
        assert len(await store.read()) == 100


# The stored form


@pytest.mark.parametrize(
    "change",
    [
        {"masterId": 3},
        {"inSync": [1, 3]},
        {"masterId": 2, "inSync": [1]},
        {"masterEpoch": -1},
        {"inSyncEpoch": 2**31},
        {"replicas": {}},
        {"replicas": {"0": {"address": "", "checkCode": ""}}},
        {"replicas": {"x": {"address": "", "checkCode": ""}}},
        {"brokerName": ""},
        {"masterEpoch": "1"},
        {"more": 1},
    ],
)
def test_an_impossible_set_is_not_read(change: dict[str, Any]) -> None:
    tree = msgspec.json.decode(msgspec.json.encode(to_tree(SET)))
    assert from_tree(tree) == SET
    with pytest.raises(UnreadableError):
        from_tree({**tree, **change})


# The file


async def with_file(disk: MemoryDisk, use: Callable[[FileStore], Any]) -> Any:
    """Open the file's store, use it and close it."""
    result = None
    async with trio.open_nursery() as nursery:
        store = FileStore(disk, "/c")
        await nursery.start(store.run)
        result = await use(store)
        nursery.cancel_scope.cancel()
    return result


async def write(store: FileStore, *epochs: int) -> None:
    for epoch in epochs:
        each = msgspec.structs.replace(SET, master_epoch=epoch)
        lease = await store.acquire(ONE)
        assert lease is not None
        assert lease.until_s == math.inf
        await store.swap(lease, "a", (await store.read_set("a")).revision, each)


async def test_the_file_is_read_again() -> None:
    disk = MemoryDisk()

    async def both(store: FileStore) -> None:
        await write(store, 1, 2)

    await with_file(disk, both)
    stored = await with_file(disk, lambda store: store.read())
    assert stored["a"].broker_set.master_epoch == 2
    assert stored["a"].revision == 2


async def test_a_second_process_is_refused() -> None:
    disk = MemoryDisk()

    async def again(_: FileStore) -> None:
        with pytest.RaisesGroup(pytest.RaisesExc(StateError, match="controllerStorePath")):
            await with_file(disk, lambda store: store.read())

    await with_file(disk, again)


DAMAGE: dict[str, Callable[[bytes], bytes | None]] = {
    "missing": lambda data: None,
    "cut off": lambda data: data[: len(data) // 2],
    "changed": lambda data: data.replace(b'"masterId":1', b'"masterId":2'),
    "empty": lambda data: b"",
    "zeros": lambda data: bytes(len(data)),
    "no object": lambda data: sealed(b"[]"),
    "no sets": lambda data: sealed(b'{"version":1,"revision":1}'),
    "more": lambda data: sealed(unsealed(data)[0].replace(b'"sets"', b'"more":1,"sets"')),
    "another name": lambda data: sealed(unsealed(data)[0].replace(b'"a":', b'"b":')),
    "a set of the future": lambda data: sealed(
        unsealed(data)[0].replace(b'"revision":2}', b'"revision":9}')
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
async def test_a_damaged_file_is_refused_and_its_bak_is_not_used(damage: str) -> None:
    disk = MemoryDisk()
    await with_file(disk, lambda store: write(store, 1, 2))
    assert disk.exists(f"{FILE}.bak")
    data = DAMAGE[damage](bytes(disk.contents[FILE]))
    if data is None:
        disk.unlink(FILE)
    else:
        disk.contents[FILE] = bytearray(data)
    with pytest.RaisesGroup(pytest.RaisesExc(CorruptRecordError, match="controller.json.bak")):
        await with_file(disk, lambda store: store.read())


@pytest.mark.parametrize("version", [b"2", b'"1"', b"null", b"true"])
async def test_a_file_of_another_version_is_refused(version: bytes) -> None:
    disk = MemoryDisk()
    await with_file(disk, lambda store: write(store, 1))
    text = unsealed(bytes(disk.contents[FILE]))[0].replace(b'"version":1', b'"version":' + version)
    disk.contents[FILE] = bytearray(sealed(text))
    with pytest.RaisesGroup(pytest.RaisesExc(UnreadableError, match="version")):
        await with_file(disk, lambda store: store.read())


async def test_a_power_cut_leaves_the_old_set_or_the_new_one() -> None:
    full = MemoryDisk(journalled=True)
    await with_file(full, lambda store: write(store, 1))
    done = 0

    async def cut(store: FileStore) -> None:
        nonlocal done
        count = 0

        def fault(operation: str, path: str) -> OSError | None:
            nonlocal count
            count += 1
            return OSError(5, "Input/output error") if count > done else None

        disk.fault = fault
        try:
            await write(store, 2)
        except UnavailableError:
            done += 1
        else:
            done = -1
        disk.fault = None

    while done >= 0:
        disk = full.copy()
        await with_file(disk, cut)
        disk.power_loss()
        stored = await with_file(disk, lambda store: store.read())
        assert stored["a"].broker_set.master_epoch in ((1, 2) if done >= 0 else (2,))


# etcd


@asynccontextmanager
async def etcd_of(account: Account | None = None) -> AsyncIterator[FakeEtcd]:
    async with trio.open_nursery() as nursery:
        etcd = FakeEtcd(account)
        await nursery.start(etcd.run)
        yield etcd
        nursery.cancel_scope.cancel()


async def test_one_of_two_controllers_leads(autojump_clock: object) -> None:
    async with etcd_of() as etcd:
        first, second = etcd.store(), etcd.store()
        lease = await first.acquire(ONE)
        assert lease is not None
        assert await second.acquire(OTHER) is None
        assert await second.leader() == ONE
        await trio.sleep(2)
        lease = await first.renew(lease)
        await trio.sleep(2)
        assert await second.acquire(OTHER) is None
        await trio.sleep(1.2)
        assert trio.current_time() > lease.until_s
        later = await second.acquire(OTHER)
        assert later is not None
        assert later.term > lease.term
        with pytest.raises(LeaseLostError):
            await first.renew(lease)


async def test_a_lease_ends_here_before_it_ends_at_etcd(autojump_clock: object) -> None:
    async with etcd_of() as etcd:
        store = etcd.store()
        asked_s = trio.current_time()
        lease = await store.acquire(ONE)
        assert lease is not None
        (end_s,) = (end for _, end in etcd.leases.values())
        assert asked_s < lease.until_s < end_s


async def test_a_deposed_controller_writes_nothing(autojump_clock: object) -> None:
    async with etcd_of() as etcd:
        first, second = etcd.store(), etcd.store()
        old = await first.acquire(ONE)
        assert old is not None
        revision = await first.swap(old, "a", NO_REVISION, SET)
        await trio.sleep(3.2)
        assert await second.acquire(OTHER) is not None
        with pytest.raises(LeaseLostError):
            await first.swap(old, "a", revision, SET.with_master(2))
        assert await second.read_set("a") == (SET, revision)


async def test_the_end_of_a_leader_is_noticed_at_once(autojump_clock: object) -> None:
    async with etcd_of() as etcd:
        first, second = etcd.store(), etcd.store()
        lease = await first.acquire(ONE)
        assert lease is not None
        assert await second.leader() == ONE
        async with trio.open_nursery() as nursery:
            nursery.start_soon(second.wait_for_change)
            await trio.sleep(1)
            assert len(nursery.child_tasks) == 1
            await first.release(lease)
            with trio.fail_after(0.1):
                while nursery.child_tasks:  # noqa: ASYNC110
                    await trio.sleep(0.01)
        assert await second.acquire(OTHER) is not None


@pytest.mark.parametrize("fault", ["down", "frozen"])
async def test_a_lost_member_costs_one_time_out(fault: str, autojump_clock: object) -> None:
    async with etcd_of() as etcd:
        store = etcd.store()
        lease = await store.acquire(ONE)
        assert lease is not None
        getattr(etcd, fault).add("e1")
        began_s = trio.current_time()
        revision = await store.swap(lease, "a", NO_REVISION, SET)
        assert trio.current_time() - began_s < 0.31
        began_s = trio.current_time()
        await store.swap(lease, "a", revision, SET.with_master(2))
        assert trio.current_time() == began_s
        etcd.down |= {"e2", "e3"}
        with pytest.raises(UnavailableError, match="etcd does not answer"):
            await store.read_set("a")


@pytest.mark.parametrize("after", [SET, None])
async def test_a_write_whose_answer_is_lost_is_found_done(
    after: BrokerSet | None, autojump_clock: object
) -> None:
    async with etcd_of() as etcd:
        store = etcd.store()
        lease = await store.acquire(ONE)
        assert lease is not None
        revision = NO_REVISION
        if after is None:
            revision = await store.swap(lease, "a", NO_REVISION, SET)
        etcd.lose_answers.append("/v3/kv/txn")
        revision = await store.swap(lease, "a", revision, after)
        assert await store.read_set("a") == (NOTHING if after is None else (after, revision))


async def test_a_lease_whose_answer_is_lost_is_found(autojump_clock: object) -> None:
    async with etcd_of() as etcd:
        store = etcd.store()
        etcd.lose_answers.append("/v3/kv/txn")
        lease = await store.acquire(ONE)
        assert lease is not None
        assert await store.swap(lease, "a", NO_REVISION, SET) > lease.term


async def test_an_expired_token_is_replaced(autojump_clock: object) -> None:
    async with etcd_of(Account("root", "secret")) as etcd:
        store = etcd.store()
        lease = await store.acquire(ONE)
        assert lease is not None
        etcd.tokens.clear()
        await store.swap(lease, "a", NO_REVISION, SET)
        assert etcd.requests.count("/v3/auth/authenticate") == 2
        etcd.account = Account("root", "other")
        etcd.tokens.clear()
        with pytest.raises(UnavailableError, match="authentication failed"):
            await store.read()


@pytest.mark.parametrize(
    "value",
    [b"", b"[]", b"x", b'{"version":2}', b'{"version":1}', b'{"version":1,"brokerName":"b"}'],
)
async def test_a_value_that_no_controller_wrote_is_refused(
    value: bytes, autojump_clock: object
) -> None:
    async with etcd_of() as etcd:
        store = etcd.store()
        lease = await store.acquire(ONE)
        assert lease is not None
        await store.swap(lease, "a", NO_REVISION, SET)
        etcd.pairs[f"{PREFIX}sets/a".encode()].value = value
        with pytest.raises(UnreadableError):
            await store.read()


async def test_a_server_that_is_no_etcd_is_an_error(autojump_clock: object) -> None:
    for answer in (b"", b"220 smtp\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]"):
        async with etcd_of() as etcd:
            store = etcd.store()

            async def speak(stream: trio.abc.Stream, host: str, answer: bytes = answer) -> None:
                await stream.send_all(answer)
                await trio.aclose_forcefully(stream)

            etcd._serve = speak  # type: ignore[method-assign]
            with pytest.raises(UnavailableError):
                await store.acquire(ONE)
    assert len(ENDPOINTS) == 3
