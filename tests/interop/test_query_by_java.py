"""The official Java clients look up messages by id and by key, as their users do.

What is expected below was seen with Apache's broker 5.5.0: run this with TROCKET_INTEROP_PEER.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from trocket.interop.java_program import run_java
from trocket.interop.peer import Cluster
from trocket.interop.wire import LONG_MAX, QUERY_MESSAGE, QUERY_NOT_FOUND, WireClient
from trocket.remoting.message_id import decode_offset_id

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("java")]

TIMEOUT_S = 240.0
TOPIC = "Looked_Up"
COUNT = 9

NO_MESSAGE = "none 208"

EXPECTED = {
    "all-keys-indexed": "0,1,3,8",
    **{f"by-offset-id-{number}": f"{number}" for number in range(COUNT)},
    **{f"by-unique-id-{number}": f"{number}" for number in range(COUNT)},
    "by-key-red": "0,1,3,8",
    "by-key-green": "3",
    "by-key-blue": "1,2,3",
    "by-key-last": "5",
    "by-key-AaAa": "6",
    "by-key-BBBB": "7",
    "at-most-two": "3,8",
    "at-most-one": "3",
    "at-most-none": NO_MESSAGE,
    "early": "0,1,3",
    "late": "8",
    "after-all": NO_MESSAGE,
    "before-all": NO_MESSAGE,
    "unknown-key": NO_MESSAGE,
    "other-case": NO_MESSAGE,
    # The client drops what has not this key among its KEYS.
    "unique-id-as-key": NO_MESSAGE,
    "no-such-offset": NO_MESSAGE,
    "no-such-unique-id": NO_MESSAGE,
}


@pytest.mark.parametrize("version", ["5.5.0", pytest.param("4.9.7", marks=pytest.mark.matrix)])
def test_messages_are_found_by_offset_id_by_unique_id_and_by_key(
    make_cluster: Callable[[], Cluster], tmp_path: Path, version: str
) -> None:
    cluster = make_cluster()
    cluster.start()
    lines = run_java(
        version,
        "Query",
        cluster.namesrv_address,
        TOPIC,
        folder=tmp_path / "client",
        timeout_s=TIMEOUT_S,
        is_done=lambda line, _: line == "end",
    )
    sent = [line.split() for line in lines if line.startswith("sent ")]
    assert [number for _, number, _, _ in sent] == [str(number) for number in range(COUNT)]
    found = dict(line.split(" ", 1) for line in lines if line.partition(" ")[0] in EXPECTED)
    assert found == EXPECTED
    check_on_the_wire(cluster, [unique for *_, unique in sent])
    host, _, port = cluster.broker_address.rpartition(":")
    places = [decode_offset_id(offset_id) for _, _, offset_id, _ in sent]
    assert {(place.ip, place.port) for place in places} == {(host, int(port))}
    offsets = [place.physical_offset for place in places]
    assert offsets == sorted(set(offsets))


def check_on_the_wire(cluster: Cluster, unique_ids: list[str]) -> None:
    """What the clients hide: codes, remarks, and how many records come."""
    fields = {
        "topic": TOPIC,
        "key": unique_ids[0],
        "maxNum": 0,
        "beginTimestamp": 0,
        "endTimestamp": LONG_MAX,
    }
    with WireClient(cluster.broker_address) as wire:
        # The count of a look-up by unique key is the broker's.
        found = wire.query_message(TOPIC, unique_ids[0], unique=True, count=0)
        assert [b"message-0" in record for record in found] == [True]
        for change in ({}, {"maxNum": 9, "topic": "Unknown"}):
            answer = wire.call(QUERY_MESSAGE, fields | change)
            assert (answer.code, answer.remark, answer.fields, answer.body) == (
                QUERY_NOT_FOUND,
                "can not find message, maybe time range not correct",
                {"indexLastUpdateTimestamp": "0", "indexLastUpdatePhyoffset": "0"},
                b"",
            )
        answer = wire.call(33, {"offset": 1 << 40})
        assert (answer.code, answer.remark) == (
            1,
            f"can not find message by the offset, {1 << 40}",
        )
