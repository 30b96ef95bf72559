"""Half messages and ends of transactions: a broker with the C extension, which takes them in runs,
and one in pure Python give the same answers and leave the same bytes on disk."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.kit import embedded_broker, send_fields
from trocket import native
from trocket.common.topic_names import REVIVE_TOPIC_PREFIX
from trocket.native import Extension
from trocket.remoting.codec import FrameDecoder, RemotingCommand, encode
from trocket.store.config import BrokerRole, FlushDiskType

from .frames import odd_json_frame
from .test_sends import (
    KEY,
    LETTERS,
    STRANGE_PROPERTIES,
    STRANGE_VALUES,
    USUAL,
    Burst,
    broken,
    full,
    outcome,
    plain_sends,
    send_of,
    setup_bursts,
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(native.extension is None, reason=native.choice.description),
]

HALF = USUAL | {"sysFlag": "4"}
COMMIT, ROLL_BACK = "8", "12"
ODD_ENDS = {
    "commitLogOffset": ["", "7", "-1", "x", "9" * 18, "9" * 19, "٣"],
    "tranStateTableOffset": ["", "99", "-1", "x"],
    "commitOrRollback": ["0", "4", "08", "", "99", "100", "-8", "x"],
    "producerGroup": ["", "other", "gröup"],
    "transactionId": ["", "other", "ключ"],
    "fromTransactionCheck": ["true", "x"],
}


def half_of(key: str, more: str = "", **changes: str) -> dict[str, str]:
    """The fields of a half message."""
    properties = f"TRAN_MSG\1true\2PGROUP\1PG\2UNIQ_KEY\1{key}\2{more}"
    return HALF | {"properties": properties} | changes


def half_frame(fields: dict[str, str], opaque: int, **more: int) -> bytes:
    return send_of(fields, f"body {opaque}".encode(), opaque, **more)


def places(answers: list[bytes]) -> list[tuple[int, int, str]]:
    """The physical offset, the queue offset and the key of each stored half message."""
    found = []
    for answer in FrameDecoder().receive_data(b"".join(answers)):
        fields = answer.ext_fields
        if "transactionId" in fields:
            offset = int(fields["msgId"][-16:], 16)
            found.append((offset, int(fields["queueOffset"]), fields["transactionId"]))
    return found


def end_fields(place: tuple[int, int, str], **changes: str) -> dict[str, str]:
    offset, queue_offset, key = place
    return {
        "producerGroup": "PG", "commitLogOffset": str(offset), "msgId": key, "bname": "b",
        "tranStateTableOffset": str(queue_offset), "commitOrRollback": COMMIT,
        "transactionId": key, "fromTransactionCheck": "false", "topic": "T",
    } | changes  # fmt: skip


def end_frame(fields: dict[str, str], opaque: int, *, flag: int = 2, serialize_type: int) -> bytes:
    return encode(
        RemotingCommand(37, fields, b"", opaque=opaque, flag=flag, serialize_type=serialize_type)
    )


class Counting:
    """The extension, with the number of frames that each call took."""

    def __init__(self) -> None:
        self.taken: list[int] = []

    def __getattr__(self, name: str) -> object:
        return getattr(native.extension, name)

    def take_transactions(self, *arguments: object) -> None:
        native.extension.take_transactions(*arguments)  # type: ignore[union-attr, arg-type]
        taken: list[object] = arguments[-1]  # type: ignore[assignment]
        if taken:
            self.taken.append(len(taken))


def both(
    received: list[Burst], monkeypatch: pytest.MonkeyPatch, **options: object
) -> tuple[list[bytes], Counting]:
    """Play bursts to both brokers, and compare them. Returns: the answers, and what was taken."""
    counting = Counting()
    extension: Extension = counting  # type: ignore[assignment]
    pure = outcome(received, None, monkeypatch, **options)
    ours = outcome(received, extension, monkeypatch, **options)
    assert [FrameDecoder().receive_data(each) for each in ours.answers] == [
        FrameDecoder().receive_data(each) for each in pure.answers
    ]
    assert ours.files.keys() == pure.files.keys()
    for path, data in ours.files.items():
        # Its times are those of the last burst, and C reads the clock for a refused end, too.
        if path != "/store/checkpoint":
            assert data == pure.files[path], path
    return ours.answers, counting


class Script:
    """Bursts of a seed: half messages, their ends, and other requests between them."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._count = 0

    def bursts(self) -> list[Burst]:
        return [*setup_bursts(), *(self._burst() for _ in range(self._random.randint(1, 6)))]

    def _burst(self) -> Burst:
        pieces: list[Burst] = [self._piece() for _ in range(self._random.randint(1, 12))]

        def made(answers: list[bytes]) -> bytes:
            return b"".join([each(answers) if callable(each) else each for each in pieces])

        return made

    def _piece(self) -> Burst:
        random = self._random
        self._count += 1
        kind = random.choice(["half", "half", "odd half", "end", "end", "odd end", "send", "json"])
        serialize_type = random.randrange(2)
        key = f"{self._count:032X}"
        if kind == "send":
            return plain_sends(random.randint(1, 3), self._count)
        if kind == "half":
            more = random.choice(["", "TAGS\1a\2", "KEYS\1k1 k2", "x\1y"])
            fields = half_of(key, more, queueId=str(random.randrange(4)))
            return half_frame(fields, self._count, serialize_type=serialize_type)
        if kind == "odd half":
            return self._odd_half(key, serialize_type)
        if kind == "json":
            fields = {LETTERS.get(name, name): value for name, value in half_of(key).items()}
            return odd_json_frame(random, 310, fields, b"odd", opaque=self._count, flag=0)
        return self._end(is_odd=kind == "odd end", serialize_type=serialize_type)

    def _odd_half(self, key: str, serialize_type: int) -> bytes:
        random = self._random
        if random.random() < 0.5:
            own, more = half_of(key)["properties"], random.choice(STRANGE_PROPERTIES)
            fields = half_of(key, properties=random.choice([more + own, own + more, own[:-1]]))
        else:
            name = random.choice(sorted(STRANGE_VALUES))
            fields = half_of(key) | {name: random.choice(STRANGE_VALUES[name])}
        flag, code = random.choice([0, 0, 2]), random.choice([310, 10])
        return send_of(fields, b"odd", self._count, code, flag=flag, serialize_type=serialize_type)

    def _end(self, *, is_odd: bool, serialize_type: int) -> Callable[[list[bytes]], bytes]:
        which, opaque, flag = self._random.random(), self._count, 2
        changes = {"commitOrRollback": self._random.choice([COMMIT, COMMIT, ROLL_BACK])}
        removed = ""
        if is_odd:
            name = self._random.choice(sorted(ODD_ENDS))
            changes[name] = self._random.choice(ODD_ENDS[name])
            flag = self._random.choice([2, 2, 0])
            removed = self._random.choice(["", "", name])

        def made(answers: list[bytes]) -> bytes:
            found = places(answers) or [(0, 0, "K")]
            fields = end_fields(found[int(which * len(found))], **changes)
            fields.pop(removed, None)
            return end_frame(fields, opaque, flag=flag, serialize_type=serialize_type)

        return made


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(st.integers(0, 2**32))
def test_whatever_is_sent_answers_and_files_are_equal(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    both(Script(seed).bursts(), monkeypatch)


@pytest.mark.parametrize("serialize_type", [0, 1])
def test_halves_and_ends_of_a_burst_are_taken_together(
    monkeypatch: pytest.MonkeyPatch, serialize_type: int
) -> None:
    def halves(first: int) -> bytes:
        return b"".join(
            half_frame(half_of(f"{n:032X}"), n, serialize_type=serialize_type)
            for n in range(first, first + 10)
        )

    def ends(answers: list[bytes]) -> bytes:
        frames = [
            end_frame(
                end_fields(place, commitOrRollback=ROLL_BACK if at % 3 == 0 else COMMIT),
                at,
                serialize_type=serialize_type,
            )
            for at, place in enumerate(places(answers)[-10:])
        ]
        return b"".join(frames) + halves(100)

    _, counting = both([*setup_bursts(), halves(0), ends, ends], monkeypatch)
    assert counting.taken == [10, 20, 20]


@pytest.mark.parametrize(
    ("fault", "options", "code"),
    [
        (full, {}, 14),
        (broken, {"flush_disk_type": FlushDiskType.SYNC_FLUSH}, 10),
        (None, {"flush_disk_type": FlushDiskType.SYNC_FLUSH}, 0),
        (None, {"broker_role": BrokerRole.SYNC_MASTER}, 11),
        (None, {"send_thread_pool_queue_capacity": 0}, 2),
        (None, {"enabled_append_prop_crc": True}, 0),
        (None, {"reject_transaction_message": True}, 16),
        (None, {"region_id": "a#b"}, 0),
    ],
    ids=["full disk", "failed fsync", "fsync", "no slave", "busy", "checksums", "rejected", "#"],
)
def test_a_run_in_trouble_is_answered_alike(
    monkeypatch: pytest.MonkeyPatch, fault: object, options: dict[str, object], code: int
) -> None:
    halves = b"".join(
        half_frame(half_of(f"{n:032X}"), n, serialize_type=0) for n in range(100, 110)
    )

    def ends(answers: list[bytes]) -> bytes:
        return b"".join(
            end_frame(end_fields(place), at, flag=flag, serialize_type=0)
            for at, place in enumerate(places(answers))
            for flag in (2, 0)
        )

    answers, _ = both([*setup_bursts(), halves, ends, ends], monkeypatch, fault=fault, **options)
    found = FrameDecoder().receive_data(b"".join(answers))
    assert {each.code for each in found if 100 <= each.opaque < 110} == {code}


async def test_no_half_message_is_for_a_topic_that_only_the_broker_sends_to(
    autojump_clock: object,
) -> None:
    """Revive topics exist, and what was popped is delivered there."""
    async with embedded_broker() as broker:
        client = await broker.connect()
        topics = broker.controller.parts.tables.topics.topic_config_table
        revive = REVIVE_TOPIC_PREFIX + "DefaultCluster"
        topics[revive] = topics["TBW102"]
        assert (await client.ask(310, send_fields("T"), b"creates the topic")).code == 0
        codes = []
        for topic in ("T", revive, "T"):
            fields = {LETTERS.get(name, name): text for name, text in half_of("K").items()}
            codes.append((await client.ask(310, fields | {"b": topic}, b"half")).code)
        assert codes == [0, 16, 0]


def test_small_log_files_are_filled_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    def burst(first: int) -> Callable[[list[bytes]], bytes]:
        halves = b"".join(half_frame(half_of(f"{n:032X}"), n) for n in range(first, first + 100))

        def made(answers: list[bytes]) -> bytes:
            ends = [
                end_frame(end_fields(place), at, serialize_type=1)
                for at, place in enumerate(places(answers)[-100:])
            ]
            return b"".join(ends) + halves

        return made

    options = {"mapped_file_size_commit_log": 64 * 1024, "mapped_file_size_consume_queue": 400}
    _, counting = both(
        [*setup_bursts(), *(burst(100 * turn) for turn in range(5))], monkeypatch, **options
    )
    assert sum(counting.taken) > 500


def test_a_key_at_the_end_of_the_properties(monkeypatch: pytest.MonkeyPatch) -> None:
    properties = "TRAN_MSG\1true\2PGROUP\1PG\2" + KEY[:-1]
    received: list[Burst] = [*setup_bursts(), half_frame(HALF | {"properties": properties}, 1)]
    _, counting = both(received, monkeypatch)
    assert counting.taken == [1]
