"""The meanings of what is typed or pasted into the search box."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trocket.operations.message_search.ids import IdKind, read_id
from trocket.operations.message_search.problems import Problem, SearchError
from trocket.operations.message_search.search_box import ClusterNames, Meaning, guesses
from trocket.remoting.hosts import host_bytes
from trocket.remoting.message_id import UniqueIdGenerator, encode_offset_id

CLIENT = "10.0.0.5@1234#99"
NAMES = ClusterNames(
    topics={"orders", "orders-archive", "payments", "billing"},
    groups=["billing", "shipping"],
    client_ids={CLIENT},
    brokers={"broker-a"},
    addresses={"10.0.0.7:10911", "[fe80::1]:10911"},
)
OURS = encode_offset_id(host_bytes("10.0.0.7", 10911), 4096)
OURS_V6 = encode_offset_id(host_bytes("fe80::1", 10911), 4096)
FOREIGN = encode_offset_id(host_bytes("10.0.0.9", 10911), 4096)
UNIQUE = UniqueIdGenerator(bytes([10, 0, 0, 5]), 1234, 0x12345678).next_id(1_700_000_000_000)
UNIQUE_V6 = UniqueIdGenerator(bytes(16), 1234, 0x12345678).next_id(1_700_000_000_000)
GRPC = "01" + "0242AC110002" + "04D2" + "08A1B2C3" + "00000001"


@pytest.mark.parametrize(
    ("text", "kind", "address"),
    [
        (OURS, IdKind.OFFSET, "10.0.0.7:10911"),
        (OURS.lower(), IdKind.OFFSET, "10.0.0.7:10911"),
        (f"  {OURS}\n", IdKind.OFFSET, "10.0.0.7:10911"),
        (OURS_V6, IdKind.OFFSET, "[fe80::1]:10911"),
        (UNIQUE, IdKind.UNIQUE, ""),
        (UNIQUE_V6, IdKind.UNIQUE, ""),
        (GRPC, IdKind.GRPC, ""),
        ("order-17", IdKind.OTHER, ""),
        ("abc", IdKind.OTHER, ""),
        # A producer's id of process 65536, whose id ends in zeros, is no place in any log.
        ("0A000005" + "0000" + "2A9F5678" + "00112233" + "0001", IdKind.UNIQUE, ""),
    ],
)
def test_ids_are_known_by_their_form(text: str, kind: IdKind, address: str) -> None:
    found = read_id(text)
    assert (found.text, found.kind, found.address) == (text.strip(), kind, address)


@pytest.mark.parametrize(
    ("text", "problem", "data"),
    [
        ("", Problem.EMPTY, {}),
        (" \n", Problem.EMPTY, {}),
        (OURS[:20], Problem.CUT_OFF, {"length": 20}),
        (OURS[:-1], Problem.CUT_OFF, {"length": 31}),
        (OURS + "A", Problem.CUT_OFF, {"length": 33}),
        (GRPC[1:] + "0", Problem.CUT_OFF, {"length": 34}),
        (OURS_V6[:-2], Problem.CUT_OFF, {"length": 54}),
        (f"{OURS[:8]} {OURS[8:]}", Problem.HAS_SPACES, {"joined": OURS}),
        (OURS_V6 + "00", Problem.NOT_AN_ID, {}),
        ("x" * 300, Problem.NOT_AN_ID, {"text": "x" * 255}),
        ("a\0b", Problem.NOT_AN_ID, {"text": "a\0b"}),
        ("a\u202eb", Problem.NOT_AN_ID, {}),
        ("\ud800", Problem.NOT_AN_ID, {}),
    ],
)
def test_what_is_no_id_says_why(text: str, problem: Problem, data: dict[str, object]) -> None:
    with pytest.raises(SearchError) as caught:
        read_id(text)
    assert caught.value.problem is problem
    assert data.items() <= caught.value.data.items()


def meanings(text: str) -> list[tuple[Meaning, str]]:
    return [(guess.meaning, guess.value) for guess in guesses(text, NAMES)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (" \u200b\ufeff ", []),
        ("orders", [(Meaning.TOPIC, "orders"), (Meaning.KEY, "orders")]),
        (
            "billing",
            [(Meaning.TOPIC, "billing"), (Meaning.GROUP, "billing"), (Meaning.KEY, "billing")],
        ),
        (
            "10.0.0.5@1234#99",
            [(Meaning.CLIENT, "10.0.0.5@1234#99"), (Meaning.KEY, "10.0.0.5@1234#99")],
        ),
        ("broker-a", [(Meaning.BROKER, "broker-a"), (Meaning.KEY, "broker-a")]),
        ("10.0.0.7:10911", [(Meaning.BROKER, "10.0.0.7:10911"), (Meaning.KEY, "10.0.0.7:10911")]),
        (
            "ORDERS",
            [(Meaning.TOPIC, "orders"), (Meaning.TOPIC, "orders-archive"), (Meaning.KEY, "ORDERS")],
        ),
        ("ship", [(Meaning.GROUP, "shipping"), (Meaning.KEY, "ship")]),
        ("10.0.0.5", [(Meaning.CLIENT, CLIENT), (Meaning.KEY, "10.0.0.5")]),
        ("order-17", [(Meaning.KEY, "order-17")]),
        ("two words", []),
        (f'"{UNIQUE}",', [(Meaning.MESSAGE, UNIQUE), (Meaning.KEY, UNIQUE)]),
        (f"[{OURS}]", [(Meaning.MESSAGE, OURS), (Meaning.KEY, OURS)]),
        (f"\u200b{GRPC}\u200b", [(Meaning.MESSAGE, GRPC), (Meaning.KEY, GRPC)]),
        (f"{UNIQUE[:8]} {UNIQUE[8:]}", [(Meaning.MESSAGE, UNIQUE)]),
        (UNIQUE[:-2], [(Meaning.MESSAGE, UNIQUE[:-2]), (Meaning.KEY, UNIQUE[:-2])]),
        ("<script>alert(1)</script>", [(Meaning.KEY, "script>alert(1)</script")]),
    ],
)
def test_a_text_has_these_meanings(text: str, expected: list[tuple[Meaning, str]]) -> None:
    assert meanings(text) == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (OURS, None),
        (OURS_V6, None),
        (UNIQUE, None),
        (FOREIGN, Problem.OTHER_CLUSTER),
        (f"{FOREIGN[:4]} {FOREIGN[4:]}", Problem.OTHER_CLUSTER),
        (f"{OURS[:4]} {OURS[4:]}", Problem.HAS_SPACES),
        (OURS[:-4], Problem.CUT_OFF),
    ],
)
def test_what_is_wrong_with_an_id_is_known_at_once(text: str, problem: Problem | None) -> None:
    first = guesses(text, NAMES)[0]
    assert first.meaning is Meaning.MESSAGE
    assert (first.problem and first.problem.problem) is problem
    if problem is Problem.OTHER_CLUSTER:
        assert first.problem is not None
        assert first.problem.data == {"address": "10.0.0.9:10911"}


@given(st.text(st.characters() | st.sampled_from("0123456789ABCDEF \0\u202e\ud800"), max_size=70))
def test_any_text_has_meanings(text: str) -> None:
    for guess in guesses(text, NAMES):
        assert guess.value
