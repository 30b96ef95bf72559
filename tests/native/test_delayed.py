"""Delayed messages: a broker with the C extension and one in pure Python store the same bytes, when
messages are sent and when they are delivered."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trocket import native
from trocket.native import Extension

from .test_sends import KEY, USUAL, outcome, send_of, setup_bursts

pytestmark = pytest.mark.skipif(native.extension is None, reason=native.choice.description)

LEVELS = [f"DELAY\1{text}\2" for text in ("1", "2", "3", "18", "19", "20", "99")]
ODD_LEVELS = [
    f"DELAY\1{text}\2" for text in ("0", "01", "-1", "+1", "100", "x", "", " 1", "1 ", "\u0661")
]
MORE = [
    "", "TAGS\1TagA\2", "KEYS\1k1 k2\2", "\2", "a\1\2", "XDELAY\0011\2", "DELAYED\0011\2",
    "a\1DELAY\0011\2", "DELAY\0011\2", "WAIT\1true\2", "WAIT\1false\2", "a_b\1c\2",
    "REAL_TOPIC\1U\2", "TAGS\1T\xe4g\2", "a\1#\2", "MSG_REGION\1r\2",
]  # fmt: skip


class Counting:
    """The extension, with the messages of its runs of deliveries and of sends."""

    def __init__(self) -> None:
        self.sends: list[int] = []
        self.deliveries: list[int] = []

    def __getattr__(self, name: str) -> object:
        return getattr(native.extension, name)

    def pack_sends(self, *arguments: object) -> object:
        packed = native.extension.pack_sends(*arguments)  # type: ignore[union-attr, arg-type]
        self.sends.append(packed[1] if packed else 0)
        return packed

    def pack_deliveries(self, *arguments: object) -> object:
        packed = native.extension.pack_deliveries(*arguments)  # type: ignore[union-attr, arg-type]
        self.deliveries.append(packed[1] if packed else 0)
        return packed


def delayed_send(number: int, properties: str, **fields: str) -> bytes:
    more = {"queueId": str(number % 4), "properties": properties} | fields
    return send_of(USUAL | more, b"%d" % number, number)


def levels_known() -> bytes:
    """The first message of each level, which C leaves to Python: it makes the level's queue."""
    return b"".join(delayed_send(level, f"{KEY}DELAY\1{level}\2") for level in range(1, 19))


def compare(received: list[bytes], monkeypatch: pytest.MonkeyPatch, **options: object) -> Counting:
    """Play bursts, and then nothing for ten times 3 s, on both kinds of broker."""
    received = [*setup_bursts(), levels_known(), *received]
    received += [send_of(USUAL, b"later", number) for number in range(10)]
    counting = Counting()
    pure = outcome(received, None, monkeypatch, **options)
    extension: Extension = counting  # type: ignore[assignment]
    ours = outcome(received, extension, monkeypatch, **options)
    assert ours.answers == pure.answers
    assert ours.files.keys() == pure.files.keys()
    for path, data in ours.files.items():
        assert data == pure.files[path], path
    return counting


@pytest.mark.slow
def test_sends_and_deliveries_in_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    bursts = [
        b"".join(
            delayed_send(
                number, f"UNIQ_KEY\1{turn:016X}{number:016X}\2DELAY\1{1 + number % 3}\2TAGS\1a"
            )
            for number in range(200)
        )
        for turn in range(2)
    ]
    counting = compare(bursts, monkeypatch)
    assert counting.sends.count(200) == 2
    # All but the first of each topic, and those of 30 s and more.
    assert sum(counting.deliveries) >= 400
    assert max(counting.deliveries) == 32


@pytest.mark.slow
def test_deliveries_go_on_in_the_next_file(monkeypatch: pytest.MonkeyPatch) -> None:
    burst = b"".join(
        delayed_send(number, f"UNIQ_KEY\1{number:032X}\2DELAY\0011\2") for number in range(300)
    )
    options = {"mapped_file_size_commit_log": 16 * 1024, "mapped_file_size_consume_queue": 400}
    counting = compare([burst, burst], monkeypatch, **options)
    assert sum(counting.deliveries) > 300


@pytest.mark.slow
@pytest.mark.parametrize("level", [*LEVELS, *ODD_LEVELS])
@pytest.mark.parametrize("is_first", [True, False])
def test_levels_in_every_form(level: str, is_first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    properties = [level + KEY + more for more in MORE] if is_first else [
        KEY + more + level for more in MORE
    ] + [KEY + more + level[:-1] for more in MORE]  # fmt: skip
    sends = [delayed_send(number, each) for number, each in enumerate(properties)]
    compare([b"".join(sends)], monkeypatch)


@pytest.mark.slow
@settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(
    st.lists(
        st.builds(
            delayed_send,
            st.integers(0, 99),
            st.lists(st.sampled_from([KEY, *LEVELS, *MORE]), max_size=4).map("".join),
        ),
        max_size=40,
    )
)
def test_any_delayed_sends(monkeypatch: pytest.MonkeyPatch, sends: list[bytes]) -> None:
    compare([b"".join(sends)], monkeypatch)


@pytest.mark.slow
def test_a_body_and_a_topic_at_their_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    properties = KEY + "DELAY\0011\2"
    sends = [
        send_of(USUAL | {"properties": properties}, bytes(size), size)
        for size in (1023, 1024, 1025)
    ]
    sends += [
        delayed_send(1, KEY + "DELAY\0011\2a\1" + "x" * size + "\2")
        for size in range(32_500, 32_768, 40)
    ]
    compare([b"".join(sends)], monkeypatch, max_message_size=1024)
