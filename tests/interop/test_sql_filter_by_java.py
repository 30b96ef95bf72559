"""The official Java clients filter by SQL92 expressions.

What is expected below was seen with Apache's broker 5.5.0: run this with TROCKET_INTEROP_PEER.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from trocket.interop.java_program import run_java
from trocket.interop.peer import Cluster
from trocket.interop.wire import PULL_MESSAGE, WITH_SUBSCRIPTION, WireClient, split_records

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("java")]

TIMEOUT_S = 240.0
ROUND_COUNT = 20
SUBSCRIPTION_PARSE_FAILED = 23

SYMBOLS = ("A", "B", "it's", "a")
REGIONS = ("eu", "us", None)


def message(number: int) -> dict[str, Any]:
    """What Filtered.java sends."""
    return {
        "price": number,
        "weight": number / 8,
        "symbol": SYMBOLS[number % 4],
        "region": REGIONS[number % 3],
        "tag": "TagB" if number % 2 else "TagA",
    }


WANTED: dict[str, Callable[[dict[str, Any]], bool]] = {
    "numbers": lambda m: 10 < m["price"] <= 30,
    "halves": lambda m: m["weight"] >= 1.5,
    "texts": lambda m: m["symbol"] in ("A", "it's"),
    "other": lambda m: m["symbol"] != "A",
    "between": lambda m: 10 <= m["price"] <= 20,
    "not-between": lambda m: not 10 <= m["price"] <= 20,
    "in": lambda m: m["region"] == "eu",
    "not-in": lambda m: m["region"] == "us",
    "null": lambda m: m["region"] is None,
    "not-null": lambda m: m["region"] is not None and m["price"] <= 10,
    "mixed": lambda m: (m["price"] > 25 or m["symbol"] == "A") and m["region"] == "us",
    # NOT comes before `=`: no region, negated, is a text.
    "not-first": lambda m: False,
    "tags": lambda m: m["tag"] == "TagB" and m["price"] < 15,
    "yes": lambda m: m["price"] % 5 == 0,
    "no-number": lambda m: False,
    "nothing": lambda m: False,
    "by-tag": lambda m: m["tag"] == "TagA",
    "all": lambda m: True,
}


def numbers(first: int, end: int, wanted: Callable[[dict[str, Any]], bool]) -> str:
    return ",".join(str(number) for number in range(first, end) if wanted(message(number)))


EXPECTED = [
    *[
        f"got {turn} {name} {numbers(ROUND_COUNT * turn, ROUND_COUNT * (turn + 1), wanted)}"
        for turn in (0, 1)
        for name, wanted in sorted(WANTED.items())
    ],
    "refused wrong 23",
    "refused half 23",
    "refused empty-in 23",
    f"pulled pull {numbers(16, 2 * ROUND_COUNT, lambda m: m['region'] == 'us')}",
]


@pytest.mark.matrix
@pytest.mark.parametrize("version", ["5.5.0", "4.9.7"])
def test_consumers_get_exactly_what_their_expressions_match(
    make_cluster_with: Callable[[Mapping[str, object]], Cluster], tmp_path: Path, version: str
) -> None:
    cluster = make_cluster_with({"enablePropertyFilter": True})
    cluster.start()
    with WireClient(cluster.broker_address) as wire:
        wire.create_topic("Filtered", queue_count=4)
    lines = run_java(
        version,
        "Filtered",
        cluster.namesrv_address,
        folder=tmp_path / "client",
        timeout_s=TIMEOUT_S,
        is_done=lambda line, _: line == "end",
    )
    words = ("got ", "pulled ", "refused ", "started ")
    assert [line for line in lines if line.startswith(words)] == EXPECTED
    check_on_the_wire(cluster)


def check_on_the_wire(cluster: Cluster) -> None:
    """A pull that brings a wrong expression along: Apache's broker answers every message."""
    fields = {
        "consumerGroup": "wire", "topic": "Filtered", "queueId": 0, "queueOffset": 0,
        "maxMsgNums": 32, "sysFlag": WITH_SUBSCRIPTION, "commitOffset": 0,
        "suspendTimeoutMillis": 0, "subscription": "price = '4'", "subVersion": 0,
        "expressionType": "SQL92",
    }  # fmt: skip
    with WireClient(cluster.broker_address) as wire:
        answer = wire.call(PULL_MESSAGE, fields)
        assert (answer.code, answer.fields["nextBeginOffset"]) == (0, "12")
        assert len(list(split_records(answer.body))) == 1
        answer = wire.call(PULL_MESSAGE, {**fields, "subscription": "price = 'none'"})
        assert (answer.code, answer.remark) == (20, "NO_MATCHED_MESSAGE")
        assert answer.fields["nextBeginOffset"] == "12"
        answer = wire.call(PULL_MESSAGE, {**fields, "subscription": ""})
        assert answer.code == SUBSCRIPTION_PARSE_FAILED
        assert answer.remark.startswith("parse the consumer's subscription failed")
        answer = wire.call(PULL_MESSAGE, {**fields, "subscription": "price > > 1"})
        if cluster.label == "trocket":
            assert answer.code == SUBSCRIPTION_PARSE_FAILED
        else:
            assert len(list(split_records(answer.checked().body))) == 12
