"""Each part of the benchmark of scale at its smallest: the measuring program itself."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest

from trocket.bench.scale_broker import PARTS
from trocket.bench.scale_curve import Curve
from trocket.bench.scale_folders import SMALL_BODY, Plan, build
from trocket.bench.scale_meter import (
    Caller,
    Curves,
    Pace,
    RefusedError,
    Request,
    Task,
    cpu_s,
    doublings,
    sizes,
)
from trocket.common.clock import SystemClock
from trocket.disk.os_disk import OsDisk
from trocket.remoting.codec import RemotingCommand, encode
from trocket.store.config import MessageStoreConfig
from trocket.store.message_store import MessageStore

FILE_SIZE = 1 << 20
QUICK = Pace(seconds=0.1, rest_s=0.0, count=5, rounds=1, settle_s=0.0)


def test_sizes_are_three_decades_and_none_is_too_small() -> None:
    assert sizes(50_000) == (50, 500, 5_000, 50_000)
    assert sizes(100) == (1, 10, 100)
    assert sizes(40, least=10) == (10, 40)
    assert doublings(1) == (1,)
    assert doublings(5) == (1, 2, 4)


def test_the_clock_of_a_process_counts_what_it_does() -> None:
    pid, before_s = os.getpid(), cpu_s(os.getpid())
    sum(range(100_000))
    assert cpu_s(pid) > before_s


def test_points_of_one_name_are_one_curve() -> None:
    seen: list[Curve] = []
    curves = Curves("things", seen.append)
    for size in (1, 10):
        curves.add("a thing", "ms", 1, size, [size * 2.0, size * 3.0, size * 4.0])
        curves.add("memory", "MB", 0, size, 7.0)
    assert [(one.what, one.points[-1].size) for one in seen] == [
        ("a thing", 1), ("memory", 1), ("a thing", 10), ("memory", 10),
    ]  # fmt: skip
    found = {each.what: each for each in curves.all()}
    assert list(found) == ["a thing", "memory"]
    assert [(one.size, one.cost) for one in found["a thing"].points] == [(1, 3.0), (10, 30.0)]
    assert found["memory"].per == "things"


def answered(*commands: RemotingCommand) -> None:
    """Have a caller ask once, and a server answer with these frames, split in the middle."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()[:2]

        def serve() -> None:
            peer, _ = listener.accept()
            with peer:
                frames = b"".join(map(encode, commands))
                peer.sendall(frames[: len(frames) // 2])
                peer.sendall(frames[len(frames) // 2 :])
                while peer.recv(1 << 16):
                    pass

        server = threading.Thread(target=serve)
        server.start()
        with Caller(f"{host}:{port}") as caller:
            caller.call(Request(34, {"a": 1}))
        server.join()


def test_a_caller_passes_over_requests_and_takes_its_answer() -> None:
    answered(RemotingCommand(40, opaque=9), RemotingCommand(0, opaque=1, flag=1))


def test_a_caller_fails_when_it_is_refused() -> None:
    with pytest.raises(RefusedError, match="code 17: none"):
        answered(RemotingCommand(17, opaque=1, flag=1, remark="none"))


def test_a_built_folder_is_one_that_a_store_opens_whole(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plan = Plan(
        files=2,
        queues=12,
        records=None,
        body_size=FILE_SIZE // 5,
        oldest_ms=1,
        newest_ms=2,
        file_size=FILE_SIZE,
    )
    assert build(tmp_path / "store", plan) == 6  # four, and two in the newest file's half
    config = MessageStoreConfig(
        store_path_root_dir=str(tmp_path / "store"), mapped_file_size_commit_log=FILE_SIZE
    )
    store = MessageStore(config, clock=SystemClock(), disk=OsDisk())
    try:
        store.load()
        assert not store.read_only
        assert store.max_offset("Scale-0", 5) == 1
        assert store.store_time_at("Scale-0", 0, 0) == 1
        assert not caplog.records  # such as: the index is built again from the log
    finally:
        store.close()


def test_a_folder_may_have_few_small_records(tmp_path: Path) -> None:
    plan = Plan(files=1, queues=3, records=7, body_size=SMALL_BODY, oldest_ms=1, newest_ms=1)
    assert build(tmp_path, plan) == 7
    units = [
        path.stat().st_size for path in (tmp_path / "consumequeue").rglob("0*") if path.is_file()
    ]
    assert len(units) == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "most", "expected"),
    [
        ("connections", 2, {"a heartbeat", "memory above that of none"}),
        ("queues", 10, {"idle, with a held pull for each", "topics.json"}),
        ("groups", 2, {"a commit of an offset", "a save of consumerOffset.json"}),
        ("logs", 1, {"start after a kill -9", "a search by time, all times"}),
        ("start-queues", 1, {"trocket: after a clean stop", "trocket: after kill -9, CPU"}),
        ("processes", 1, {"messages in all", "a message, in the brokers"}),
        ("proxies", 1, {"a message, in its proxy", "receiving: a message, in its proxy"}),
    ],
)
def test_a_part_is_measured(part: str, most: int, expected: set[str], tmp_path: Path) -> None:
    seen: dict[str, Curve] = {}
    one_part = PARTS[part]
    task = Task(
        one_part.sizes(most)[-1:],
        tmp_path / "run",
        QUICK,
        ["trocket"],
        lambda curve: seen.update({curve.what: curve}),
    )
    curves = one_part.run(task)
    assert expected <= {one.what for one in curves}
    assert curves == list(seen.values())
    for one in curves:
        assert [point.size for point in one.points] == [most]
        assert all(point.low <= point.cost <= point.high for point in one.points)
