"""client/core/trace_records.py: beside what Apache's own classes encoded, and with bad records."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trocket.client.core.trace_records import (
    ConsumeOutcome,
    EndTransactionRecord,
    PubRecord,
    RecallRecord,
    SubAfterRecord,
    SubBeforeRecord,
    TracedType,
    decode_record,
    decode_records,
    encode_record,
    index_keys,
)
from trocket.client.messages.transaction import TransactionState
from trocket.common.java_integers import INT32_MAX, INT64_MAX
from trocket.remoting.errors import LocalProtocolError, RemoteProtocolError

ID = "7F0000010A3C18B4AAC21B7D5C5D0001"
REQUEST = "7F0000010A3C18B4AAC21B7D5C5D0002"
TIME_MS = 1700000000123

PUB = PubRecord(
    time_ms=TIME_MS,
    region="DefaultRegion",
    group="group",
    topic="Orders",
    message_id=ID,
    tags="tag-ü",
    keys="key-1 key-2",
    store_host="127.0.0.1:10911",
    body_length=1234,
    cost_ms=42,
    kind=TracedType.NORMAL,
    offset_message_id="7F00000100002A9F00000000000001F4",
    is_success=True,
)
SUB_AFTER = SubAfterRecord(
    request_id=REQUEST,
    message_id=ID,
    cost_ms=42,
    is_success=True,
    keys="key-1 key-2",
    outcome=ConsumeOutcome.SUCCESS,
    time_ms=TIME_MS,
    group="group",
)


def sub_before(keys: str | None) -> SubBeforeRecord:
    return SubBeforeRecord(
        time_ms=TIME_MS,
        region="DefaultRegion",
        group="group",
        request_id=REQUEST,
        message_id=ID,
        retry_times=3,
        keys=keys,
    )


def end(state: TransactionState, *, is_from_check: bool) -> EndTransactionRecord:
    return EndTransactionRecord(
        time_ms=TIME_MS,
        region="DefaultRegion",
        group="group",
        topic="Orders",
        message_id=ID,
        tags="tag-ü",
        keys="key-1 key-2",
        store_host="127.0.0.1:10911",
        kind=TracedType.NORMAL,
        transaction_id=ID,
        state=state,
        is_from_check=is_from_check,
    )


APACHES = {
    "pub": PUB,
    "pub_bare": PubRecord(
        **{name: getattr(PUB, name) for name in PUB.__struct_fields__}
        | {"tags": None, "keys": None, "kind": TracedType.DELAY, "is_success": False}
    ),
    "sub_before": sub_before("key-1 key-2"),
    "sub_before_bare": sub_before(None),
    "sub_after": SUB_AFTER,
    "sub_after_cloud": SubAfterRecord(
        request_id=REQUEST,
        message_id=ID,
        cost_ms=42,
        is_success=False,
        keys="key-1 key-2",
        outcome=ConsumeOutcome.FAILED,
    ),
    "end_transaction": end(TransactionState.COMMIT, is_from_check=True),
    "end_transaction_unknown": end(TransactionState.UNKNOWN, is_from_check=False),
    "recall": RecallRecord(
        time_ms=TIME_MS,
        region="DefaultRegion",
        group="group",
        topic="Orders",
        message_id=ID,
        is_success=True,
    ),
}
"""What ApacheTraces.java had encoded."""


@pytest.mark.parametrize("version", ["5.5.0", "4.9.7"])
def test_apaches_records_are_read_and_written_as_they_are(version: str) -> None:
    made = json.loads((Path(__file__).parent / f"apache_traces_{version}.json").read_text())
    assert set(APACHES) - set(made) == ({"recall"} if version == "4.9.7" else set())
    for name, in_hex in made.items():
        body = bytes.fromhex(in_hex)
        assert decode_records(body) == ([APACHES[name]], []), name
        if name != "sub_after_cloud":  # we write none for clouds
            assert encode_record(APACHES[name]).encode() == body, name


TEXT = st.text(st.characters(exclude_characters="\x01\x02", codec="utf-8"), min_size=1)
OPTIONAL = st.none() | TEXT.filter(lambda text: text != "null")
TIME = st.integers(0, INT64_MAX)
COUNT = st.integers(0, INT32_MAX)
COST = st.integers(-INT32_MAX - 1, INT32_MAX)
RECORDS = st.one_of(
    st.builds(
        PubRecord,
        time_ms=TIME,
        region=TEXT,
        group=TEXT,
        topic=TEXT,
        message_id=TEXT,
        tags=OPTIONAL,
        keys=OPTIONAL,
        store_host=TEXT,
        body_length=COUNT,
        cost_ms=COST,
        kind=st.sampled_from(TracedType),
        offset_message_id=OPTIONAL,
        is_success=st.booleans(),
        client_host=st.just("") | TEXT,
    ),
    st.builds(
        SubBeforeRecord,
        time_ms=TIME,
        region=TEXT,
        group=TEXT,
        request_id=TEXT,
        message_id=TEXT,
        retry_times=COUNT,
        keys=OPTIONAL,
    ),
    st.builds(
        SubAfterRecord,
        request_id=TEXT,
        message_id=TEXT,
        cost_ms=COST,
        is_success=st.booleans(),
        keys=OPTIONAL,
        outcome=st.sampled_from(ConsumeOutcome),
        time_ms=TIME,
        group=TEXT,
    ),
    st.builds(
        EndTransactionRecord,
        time_ms=TIME,
        region=TEXT,
        group=TEXT,
        topic=TEXT,
        message_id=TEXT,
        tags=OPTIONAL,
        keys=OPTIONAL,
        store_host=TEXT,
        kind=st.sampled_from(TracedType),
        transaction_id=OPTIONAL,
        state=st.sampled_from(TransactionState),
        is_from_check=st.booleans(),
    ),
    st.builds(
        RecallRecord,
        time_ms=TIME,
        region=TEXT,
        group=TEXT,
        topic=TEXT,
        message_id=TEXT,
        is_success=st.booleans(),
    ),
)


@given(st.lists(RECORDS, max_size=5))
def test_what_is_written_is_read(records: list) -> None:
    body = "".join(map(encode_record, records)).encode()
    assert decode_records(body) == (records, [])


@given(
    st.binary(max_size=200)
    | st.lists(RECORDS, min_size=1).map(
        lambda all_: b"".join(encode_record(each).encode() for each in all_)[3:-3]
    )
    # Known types with any number of any fields, none too.
    | st.tuples(
        st.sampled_from(["Pub", "SubBefore", "SubAfter", "EndTransaction", "Recall"]),
        st.lists(st.sampled_from(["", "0", "x", "true", "null"]), max_size=16),
    ).map(lambda kind: "\x01".join((kind[0], *kind[1])).encode() + b"\x02")
)
def test_no_body_raises(body: bytes) -> None:
    decoded = decode_records(body)
    lines = [line for line in body.decode("utf-8", "replace").split("\x02") if line]
    assert len(decoded.records) + len(decoded.bad) in (len(lines), 1)


def fields(record: object) -> list[str]:
    return encode_record(record)[:-1].split("\x01")  # type: ignore[arg-type]


def changed(record: object, index: int, value: str) -> str:
    return "\x01".join([*fields(record)[:index], value, *fields(record)[index + 1 :]])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "unknown type ''"),
        ("Publish\x011", "unknown type 'Publish'"),
        ("Pub\x01" + "x" * 1000, "has 1 fields"),
        ("\x01".join(fields(PUB)[:9]), "a Pub record has 8 fields"),
        (changed(PUB, 1, "yesterday"), "time_ms of a Pub record is 'yesterday': not a number"),
        (changed(PUB, 1, "-1"), "not a number from 0 to"),
        (changed(PUB, 1, "١٢"), "not a number"),
        (changed(PUB, 1, str(INT64_MAX + 1)), "not a number from 0 to"),
        (changed(PUB, 5, ""), "message_id of a Pub record is '': empty"),
        (changed(PUB, 9, "2147483648"), "body_length of a Pub record is '2147483648'"),
        (changed(PUB, 11, "5"), "kind of a Pub record is '5': not one of 0, 1, 2, 3, 4"),
        (changed(PUB, 13, "yes"), "is_success of a Pub record is 'yes': not one of true, false"),
        (changed(SUB_AFTER, 6, "9"), "outcome of a SubAfter record is '9'"),
        (changed(APACHES["end_transaction"], 11, "COMMIT"), "state of a EndTransaction record"),
    ],
)
def test_a_bad_record_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(RemoteProtocolError, match=why.replace("'", ".").replace("(", ".")):
        decode_record(text)


def test_bad_records_are_counted_and_the_others_read() -> None:
    good = encode_record(PUB).encode()
    decoded = decode_records(good + b"Pub\x01x\x02" + good + b"?\x02Pub\x02" + good[:20])
    assert decoded.records == [PUB, PUB]
    assert len(decoded.bad) == 4
    assert decode_records(b"\xff" + good).records == []
    assert "not UTF-8" in decode_records(b"\xff" + good).bad[0]
    assert decode_records(b"") == ([], [])


def test_older_records_are_read_and_newer_ones_as_far_as_they_are_known() -> None:
    first = "\x01".join([*fields(PUB)[:12], "true"])
    assert decode_record(first) == PubRecord(
        **{name: getattr(PUB, name) for name in PUB.__struct_fields__} | {"offset_message_id": None}
    )
    newer = decode_record("\x01".join([*fields(PUB), "127.0.0.1@1", "more", "more"]))
    assert isinstance(newer, PubRecord)
    assert newer.client_host == "127.0.0.1@1"
    oldest = decode_record("\x01".join(fields(SUB_AFTER)[:6]))
    assert oldest == SubAfterRecord(
        request_id=REQUEST, message_id=ID, cost_ms=42, is_success=True, keys="key-1 key-2"
    )
    # Go's client writes its host behind the keys.
    assert decode_record("\x01".join([*fields(sub_before(None)), "10.0.0.1"])) == sub_before(None)


def test_a_separator_in_a_field_is_refused() -> None:
    for text in ("a\x01b", "a\x02b"):
        with pytest.raises(LocalProtocolError, match="a separator is in a field"):
            encode_record(sub_before(text))


def test_records_are_found_by_ids_and_keys() -> None:
    assert index_keys([PUB, SUB_AFTER, APACHES["recall"]]) == [ID, "key-1", "key-2"]
