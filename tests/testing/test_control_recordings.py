"""Recordings and replays of `trocket up --test-clock`, at the command of its control port."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from .blocking_client import Client, Code, pull_fields, send_fields
from .controlled import TIMEOUT_S, Controlled, Refused, controlled

SEND = int(Code.SEND_MESSAGE_V2)
HELD_MS = 15_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controlled]:
    with controlled(tmp_path_factory.mktemp("up"), "--memory") as running:
        yield running


def stopped(broker: Controlled) -> str:
    """The recording, as the port answers it."""
    request = urllib.request.Request(broker.control + "/stop-recording", b"{}")
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
        assert answer.headers["Content-Type"] == "application/jsonl"
        return bytes(answer.read()).decode()


def objects(recording: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in recording.splitlines()]


def replayed(broker: Controlled, recording: str) -> list[tuple[int, int | None, int | None]]:
    found = broker.send("POST", "/replay", recording.encode())["requests"]
    return [(each["request_code"], each["recorded_code"], each["code"]) for each in found]


def test_a_recording_has_both_servers_and_its_replay_both_answers(broker: Controlled) -> None:
    with Client(broker.broker) as client, Client(broker.namesrv) as names:
        client.send("Orders", b"before")
        broker.ask("POST", "/record")
        names.wait_for_route("Orders")
        client.send("Orders", b"bread")
        lines = objects(recording := stopped(broker))
        client.send("Orders", b"after")
    last = [(each["dir"], each["name"], each["to"]) for each in lines[-3:]]
    own = lines[-2]["peer"]
    assert last == [
        ("response", "SUCCESS", lines[0]["peer"]),
        ("request", "SEND_MESSAGE_V2", broker.broker),
        ("response", "SUCCESS", own),
    ]
    assert lines[0]["to"] == broker.namesrv
    broker.fault("answer", SEND, answer_code=2)
    codes = replayed(broker, recording)
    assert codes[-1] == (SEND, 0, 2)
    assert set(codes[:-1]) <= {(105, 17, 0), (105, 0, 0)}
    assert replayed(broker, recording)[-1] == (SEND, 0, 0)
    with Client(broker.broker) as client:
        assert client.pull("Orders") == [b"before", b"bread", b"after", b"bread"]


def test_a_pull_that_waited_waits_again(broker: Controlled) -> None:
    with Client(broker.broker) as client, Client(broker.broker) as consumer:
        client.send("Waiting", b"first")
        broker.ask("POST", "/record")
        fields = pull_fields("Waiting", offset=1, wait_ms=HELD_MS)
        opaque = consumer.begin(Code.PULL_MESSAGE, fields)
        assert consumer.pull("Waiting") == [b"first"]  # the broker has the other, too
        client.send("Waiting", b"second")
        assert b"second" in consumer.end(opaque).body
        recording = stopped(broker)
    pull = int(Code.PULL_MESSAGE)
    assert replayed(broker, recording) == [(pull, 0, 0), (pull, 0, 0), (SEND, 0, 0)]


def test_a_request_without_an_answer_gets_one_in_the_replay(broker: Controlled) -> None:
    number = broker.fault("drop", SEND)
    broker.ask("POST", "/record")
    with Client(broker.broker) as client:
        client.begin(Code.SEND_MESSAGE_V2, send_fields("Lost"), b"stored")
        while not broker.hits(number):
            pass
    assert replayed(broker, stopped(broker)) == [(SEND, None, 0)]


def test_a_recording_goes_on_over_a_restart(broker: Controlled) -> None:
    broker.ask("POST", "/record")
    for _ in range(2):
        with Client(broker.broker) as client:
            client.send("Restarted")
        broker.ask("POST", "/restart")
    recording = stopped(broker)
    lines = objects(recording)
    assert [each["request_code"] for each in lines] == [SEND] * 4
    assert replayed(broker, recording) == [(SEND, 0, 0)] * 2


def test_a_new_recording_forgets_the_one_that_runs(broker: Controlled) -> None:
    broker.ask("POST", "/record")
    with Client(broker.broker) as client:
        client.send("Forgotten")
        broker.ask("POST", "/record")
    assert stopped(broker) == ""
    assert replayed(broker, "") == []


@pytest.mark.parametrize(
    ("path", "body", "status", "text"),
    [
        ("/stop-recording", b"", 409, "nothing is recorded"),
        ("/replay", b"hello", 400, "line 1 is not of a recording: JSON is malformed"),
        ("/replay", b'{"dir": "request", "frame_hex": "0"}', 400, "line 1"),
        ("/replay", b'{}\n{"dir": "request", "frame_hex": "0000"}', 400, "line 2"),
        ("/replay", b"\xff", 400, "not UTF-8"),
        ("/record", b'{"x": 1}', 400, "unknown field"),
    ],
)
def test_what_is_refused(
    broker: Controlled, path: str, body: bytes, status: int, text: str
) -> None:
    with pytest.raises(Refused, match=text) as refused:
        broker.send("POST", path, body)
    assert refused.value.status == status
