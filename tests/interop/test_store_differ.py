"""The store differ: on made-up visits and logs, and between real brokers."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trocket.interop import store_differ
from trocket.interop.log_on_disk import Stored, Unit, by_queue, read_log, read_messages, read_queues
from trocket.interop.pop_round_trip import CHECKS as POP_CHECKS
from trocket.interop.pop_round_trip import ENDINGS
from trocket.interop.pop_round_trip import MOMENTS as POP_MOMENTS
from trocket.interop.process import PeerError
from trocket.interop.report.cells import Cell, Kind, Verdict
from trocket.interop.store_differ import CHECKS, jobs, with_differences
from trocket.interop.store_pair import (
    BATCH_ENTRY,
    BATCH_QUIRK,
    COMPARISONS,
    StorePair,
    compare_brokers_own,
    compare_queues,
    compare_records,
)
from trocket.interop.store_round_trip import GROUP_MEMBERS, MOMENTS, SIZES, TOPICS, Visit
from trocket.interop.trocket_peer import TrocketBroker
from trocket.interop.wire import Acknowledged, Outgoing, WireClient
from trocket.remoting.message import MessageExt

COUNT = 1_100


class MadeUpRoundTrip:
    """The part of a round trip that the checks use."""

    def __init__(self, version: str = "5.5.0", sizes: str = "small files") -> None:
        self.version = version
        self.sizes = sizes


def made_up_visit() -> Visit:
    """A visit that saw nothing wrong: two queues, a key for each record."""
    log = [
        Stored(
            ("Orders", number % 2, number // 2),
            100 * number,
            f"{number:040x}",
            1_000 + 10 * number,
            (f"key{number}",),
            f"unique{number}",
        )
        for number in range(COUNT)
    ]
    visit = Visit("apache-5.5.0", log, searched=log)
    visit.served = {queue: list(records) for queue, records in by_queue(log).items()}
    visit.ends = {queue: (0, len(records)) for queue, records in visit.served.items()}
    for record in log[:90]:
        visit.lookups[record.place[0], record.keys[0], False] = [record.place]
        visit.lookups[record.place[0], record.unique, True] = [record.place]
    visit.times = {("Orders", 0, 1_000): 0, ("Orders", 1, 1_011): 1, ("Orders", 1, 99_999): 550}
    visit.topics = {topic: (count, count, 6) for topic, count in TOPICS.items()}
    visit.group = dict(GROUP_MEMBERS)
    visit.offset = visit.offset_expected = 11
    visit.acknowledged = [Acknowledged(*record.place, record.physical_offset) for record in log]
    return visit


def differences(what: str, visit: Visit, round_trip: MadeUpRoundTrip | None = None) -> list[str]:
    return CHECKS[what](round_trip or MadeUpRoundTrip(), visit)  # type: ignore[arg-type]


@pytest.mark.parametrize("what", CHECKS)
def test_what_is_right_passes(what: str) -> None:
    assert differences(what, made_up_visit()) == []


@pytest.mark.parametrize("what", CHECKS)
def test_a_visit_that_saw_nothing_does_not_pass(what: str) -> None:
    assert differences(what, Visit("apache-5.5.0", [])) != []


def test_a_record_that_is_served_changed_missing_or_besides_is_found() -> None:
    what = "every record at its place"
    visit = made_up_visit()
    queue = visit.served["Orders", 1]
    queue[3] = replace(queue[3], sha1="0")
    del queue[-1]
    visit.served["Else", 0] = [queue[0]]
    found = differences(what, visit)
    assert len(found) == 3
    assert "('Else', 0): logged None" in found[0]
    assert found[2].endswith("served None")


def test_what_was_acknowledged_and_is_gone_or_elsewhere_is_found() -> None:
    visit = made_up_visit()
    visit.acknowledged[5] = replace(visit.acknowledged[5], physical_offset=7)
    visit.acknowledged.append(Acknowledged("Orders", 0, 9_999, 1))
    found = differences("nothing acknowledged is missing", visit)
    assert len(found) == 2
    assert found[1].endswith("served None")


def test_ends_that_moved_are_found() -> None:
    visit = made_up_visit()
    visit.ends["Orders", 0] = (1, 550)
    visit.ends["Else", 0] = (0, 1)
    found = differences("queues begin and end where they did", visit)
    assert found == [
        "('Else', 0): expected None, found (0, 1)",
        "('Orders', 0): expected (0, 550), found (1, 550)",
    ]


def test_a_key_that_finds_too_much_or_too_little_is_found() -> None:
    what = "keys find their messages"
    visit = made_up_visit()
    visit.lookups["Orders", "key0", False] = []
    visit.lookups["Orders", "no such key", False] = [("Orders", 0, 1)]
    assert len(differences(what, visit)) == 2


def test_a_message_is_found_twice_only_after_a_kill() -> None:
    what = "keys find their messages"
    visit = made_up_visit()
    visit.lookups["Orders", "key0", False] *= 2
    assert len(differences(what, visit)) == 1
    visit.after_kill = True
    assert differences(what, visit) == []


def test_a_time_is_exact_but_with_4x() -> None:
    what = "a time finds a message stored then"
    visit = made_up_visit()
    visit.times["Orders", 1, 1_011] = 0
    assert len(differences(what, visit)) == 1
    older = replace(visit, asked="apache-4.9.7")
    assert differences(what, older, MadeUpRoundTrip("4.9.7")) == []
    del older.times["Orders", 1, 99_999]
    older.times["Orders", 1, 1_011] = 3
    assert len(differences(what, older, MadeUpRoundTrip("4.9.7", "default sizes"))) == 1
    # Ours is exact over any store.
    assert differences(what, replace(visit, asked="trocket"), MadeUpRoundTrip("4.9.7")) != []


def test_tables_that_changed_are_found() -> None:
    visit = made_up_visit()
    visit.topics["Orders"] = (4, 4, 2)
    visit.group["retryMaxTimes"] = 16
    visit.offset = None
    found = differences("topics, groups and offsets are kept", visit)
    assert len(found) == 3
    assert found[2] == "offset: committed 11, found None"


# ---- jobs and cells ----------------------------------------------------------------------


def test_the_jobs_owe_a_cell_for_each_check_of_each_moment() -> None:
    found = jobs(["trocket"], ["apache-5.5.0", "apache-4.9.7"])
    cells = [cell for job in found for cell in job.owed]
    round_trip_count = len(MOMENTS) * len(CHECKS) * len(SIZES)
    pop_count = len(ENDINGS) * len(POP_MOMENTS) * len(POP_CHECKS)  # 5.x only
    # 4.x adds other properties than 5.x.
    same_load_count = len(COMPARISONS) + len(COMPARISONS) - 1
    assert len(cells) == 2 * round_trip_count + pop_count + same_load_count
    assert len({cell.name for cell in cells}) == len(cells)
    assert {cell.kind for cell in cells} == {Kind.STORE}
    assert {cell.broker for cell in cells} == {
        f"{name} {how}"
        for version in ("5.5.0", "4.9.7")
        for name, how in [
            (f"apache-{version}", "over trocket"),
            ("trocket", f"over apache-{version}"),
            ("trocket", f"beside apache-{version}"),
        ]
    }


def test_brokers_whose_files_cannot_be_reached_have_no_jobs() -> None:
    assert jobs(["trocket"], ["docker-5.3.3", "rocketmq://host"]) == []
    assert jobs([], ["apache-5.5.0"]) == []
    with pytest.raises(PeerError, match="there is no peer"):
        jobs(["trocket"], ["kafka"])


CELL = Cell(Kind.STORE, "x", "wire", "trocket over apache-5.5.0", Verdict.SKIPPED)


def test_a_cell_lists_the_first_differences_and_counts_the_others() -> None:
    assert with_differences(CELL, [], 2.0) == replace(CELL, verdict=Verdict.PASSED, seconds=2.0)
    cell = with_differences(CELL, [f"d{number}" for number in range(9)])
    assert cell.verdict is Verdict.FAILED
    assert cell.detail == "d0; d1; d2; d3; d4; and 4 more"


def test_without_room_the_cells_are_skipped_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    usage = SimpleNamespace(free=5 << 30)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    job = next(job for job in jobs(["trocket"], ["apache-5.5.0"]) if "default" in job.name)
    reported: list[Cell] = []
    job.play(job.owed, tmp_path, reported.append)
    assert [cell.name for cell in reported] == [cell.name for cell in job.owed]
    assert {cell.verdict for cell in reported} == {Verdict.SKIPPED}
    assert reported[0].detail == "needs 8 GiB of free disk; there are 5"


def test_a_chain_that_broke_down_tells_what_it_had_seen(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class BrokenRoundTrip(MadeUpRoundTrip):
        def __init__(self, version: str, sizes: str, folder: Path) -> None:
            super().__init__(version, sizes)
            self.visits: dict[str, Visit] = {}

        def run(self) -> None:
            whole, broken = made_up_visit(), made_up_visit()
            whole.end()
            self.visits = dict(zip(MOMENTS, [whole, broken], strict=False))
            raise PeerError("gone")

    monkeypatch.setattr(store_differ, "RoundTrip", BrokenRoundTrip)
    job = jobs(["trocket"], ["apache-5.5.0"])[0]
    reported: list[Cell] = []
    with pytest.raises(PeerError, match="gone"):
        job.play(job.owed[1:], tmp_path, reported.append)
    assert [cell.name for cell in reported] == [cell.name for cell in job.owed[1 : len(CHECKS)]]
    assert {cell.verdict for cell in reported} == {Verdict.PASSED}


# ---- two stores with one load ------------------------------------------------------------


def message(number: int, **changed: Any) -> MessageExt:
    properties = b"UNIQ_KEY\x01u%d\x02TAGS\x01a\x02MSG_REGION\x01r\x02" % number
    fields: dict[str, Any] = {
        "topic": "Orders",
        "queue_id": number % 13,
        "queue_offset": number // 13,
        "physical_offset": 200 * number,
        "body": b"x",
        "properties_bytes": properties,
        "flag": 0,
        "sys_flag": 0,
        "born_timestamp_ms": 1,
        "born_host": b"\x7f\0\0\1\0\0\0\1",
        "store_timestamp_ms": 2,
        "store_host": b"\x7f\0\0\1\0\0\0\2",
        "reconsume_times": 0,
        "prepared_transaction_offset": 0,
        "store_size": 150 + len(properties),
        "magic": 3,
        "body_crc": 4,
    }
    return MessageExt(**{**fields, **changed})


class MadeUpPair:
    """Two stores of 450 messages; those of one can be changed."""

    def __init__(self) -> None:
        self.logs = {
            whose: [message(number) for number in range(450)] for whose in ("ours", "apaches")
        }
        self.queues = {whose: self.units(log) for whose, log in self.logs.items()}

    @staticmethod
    def units(log: list[MessageExt]) -> dict[tuple[str, int], list[Unit]]:
        queues: dict[tuple[str, int], list[Unit]] = {}
        for each in log:
            unit = Unit(each.physical_offset, each.store_size, 97)
            queues.setdefault((each.topic, each.queue_id), []).append(unit)
        return queues

    def texts(self, what: str) -> list[str]:
        return [each.text for each in COMPARISONS[what](self)]  # type: ignore[arg-type]

    def change(self, number: int, **changed: Any) -> None:
        self.logs["apaches"][number] = message(number, **changed)


@pytest.mark.parametrize("what", COMPARISONS)
def test_the_same_load_passes(what: str) -> None:
    assert MadeUpPair().texts(what) == []


def test_when_by_whom_and_from_which_port_is_not_compared() -> None:
    pair = MadeUpPair()
    pair.change(3, store_timestamp_ms=9, store_host=b"\x7f\0\0\1\0\0\0\7", born_host=b"12345678")
    order = b"MSG_REGION\x01r\x02TAGS\x01a\x02UNIQ_KEY\x01u4"  # 4.x: another order, no last \x02
    size = 150 + len(order)
    pair.change(4, properties_bytes=order, store_size=size)
    for number in range(5, 450):
        pair.change(number, physical_offset=200 * number - 1)
    assert pair.texts("every record is the same") == []
    assert pair.texts("brokers add the same properties") == []


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"body": b"y"}, "record 7 Orders/7/0, body: ours b'x', apache's b'y'"),
        ({"sys_flag": 4}, "record 7 Orders/7/0, sys_flag: ours 0, apache's 4"),
        ({"store_size": 1_000}, "size without properties"),
        ({"physical_offset": 1}, "physical_offset: ours 1400, apache's 1"),
        ({"properties_bytes": b"UNIQ_KEY\x01u7\x02TAGS\x01b\x02"}, "properties: ours"),
    ],
)
def test_another_field_of_a_record_is_found(changed: dict[str, Any], text: str) -> None:
    pair = MadeUpPair()
    pair.change(7, **changed)
    found = pair.texts("every record is the same")
    assert any(text in each for each in found), found


def test_a_record_too_many_is_found() -> None:
    pair = MadeUpPair()
    pair.logs["apaches"].append(message(450))
    assert pair.texts("every record is the same") == ["record 450: ours none, apache's Orders/8/34"]


def test_the_brokers_own_properties_differ_by_a_quirk_only_in_batches() -> None:
    pair = MadeUpPair()
    without = b"UNIQ_KEY\x01u7\x02TAGS\x01a\x02"
    pair.change(7, properties_bytes=without)
    (found,) = compare_brokers_own(pair)  # type: ignore[arg-type]
    assert found.quirk == ""
    pair.logs["ours"][7] = message(7, body=BATCH_ENTRY)
    (found,) = compare_brokers_own(pair)  # type: ignore[arg-type]
    row = found.quirk.removeprefix("docs/quirks.md: ")
    assert f"| {row}" in (Path(__file__).parents[2] / "docs" / "quirks.md").read_text()


def test_a_unit_that_stands_for_another_record_or_tag_is_found() -> None:
    pair = MadeUpPair()
    units = pair.queues["apaches"]["Orders", 2]
    units[0] = replace(units[0], tags_code=98)
    units[1] = replace(units[1], size=units[1].size + 1)
    units.append(Unit(1, 1, 0))
    assert pair.texts("every queue is the same") == [
        "('Orders', 2) unit 0: ours (2, True, 97), apache's (2, True, 98)",
        "('Orders', 2) unit 1: ours (15, True, 97), apache's (15, False, 97)",
        "('Orders', 2) unit 35: ours None, apache's (None, False, 0)",
    ]


@pytest.mark.slow
def test_queues_are_read_from_their_files(tmp_path: Path) -> None:
    keys = {"mappedFileSizeCommitLog": 65_536, "mappedFileSizeConsumeQueue": 60}
    broker = TrocketBroker(tmp_path / "broker", store=tmp_path / "store", broker_keys=keys)
    try:
        broker.start_broker()
        with WireClient(broker.broker_address) as client:
            client.send_all(
                (Outgoing("Some", number % 2, b"x" * 100) for number in range(20)), together=1
            )
        broker.stop_broker()
    finally:
        broker.close()
    log = read_messages(tmp_path / "store")
    assert [each.body for each in log] == [b"x" * 100] * 20
    assert [each.place for each in read_log(tmp_path / "store")] == [
        ("Some", number % 2, number // 2) for number in range(20)
    ]
    queues = read_queues(tmp_path / "store")
    assert queues.keys() == {("Some", 0), ("Some", 1)}
    for (_, queue_id), units in queues.items():
        assert [(unit.physical_offset, unit.size) for unit in units] == [
            (each.physical_offset, each.store_size) for each in log if each.queue_id == queue_id
        ]


@pytest.mark.slow
@pytest.mark.interop
@pytest.mark.parametrize("version", ["5.5.0", pytest.param("4.9.7", marks=pytest.mark.matrix)])
def test_two_real_stores_are_equal(version: str, tmp_path: Path) -> None:
    pair = StorePair(version, tmp_path).run()
    assert list(compare_records(pair)) == []
    assert list(compare_queues(pair)) == []
    if version == "5.5.0":
        assert {each.quirk for each in compare_brokers_own(pair)} == {BATCH_QUIRK}
