"""`trocket interop record`: a cluster's traffic as lines, and how it ends."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from trocket.blocking import Message, Producer
from trocket.testing import Broker
from trocket.testing.recording.frame_lines import frame_line

TIMEOUT_S = 30.0
COMMAND = (sys.executable, "-m", "trocket.cli.main", "interop", "record")

pytestmark = pytest.mark.slow


class Recorder:
    """A running `record`."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stderr is not None
        self.first = self.process.stderr.readline()
        found = re.search(r"for clients: (\S+:\d+); Ctrl-C ends", self.first)
        self.address = found.group(1) if found else ""

    def end(self, number: signal.Signals = signal.SIGINT) -> tuple[int, list[str], str]:
        """Exit status, lines, and what it said last."""
        self.process.send_signal(number)
        out, error = self.process.communicate(timeout=TIMEOUT_S)
        return self.process.returncode, out.splitlines(), error


@pytest.fixture
def start() -> Iterator[Callable[..., Recorder]]:
    made: list[Recorder] = []

    def start(*arguments: str) -> Recorder:
        made.append(Recorder(*arguments))
        return made[-1]

    yield start
    for recorder in made:
        if recorder.process.poll() is None:
            recorder.process.kill()
        recorder.process.communicate()


def send(address: str, topic: str) -> None:
    with Producer(f"rocketmq://{address}") as producer:
        producer.send(Message(topic, "hello", tags="new"))


def test_lines_while_it_runs_and_a_count_at_the_end(
    broker: Broker, start: Callable[..., Recorder]
) -> None:
    recorder = start("--namesrv", broker.namesrv_address)
    send(recorder.address, "Recorded")
    status, lines, last = recorder.end()
    assert status == 0, last
    time = r"\d\d:\d\d:\d\d\.\d{3}"
    sends = [line for line in lines if re.match(rf"{time} c\d+ > SEND_MESSAGE_V2 310 #", line)]
    assert len(sends) == 1
    assert "b=Recorded" in sends[0]
    assert sends[0].endswith('body 5 B "hello"')
    for answer in (r"SUCCESS 0 to #\d+ SEND_MESSAGE_V2 ", r".* body \d+ B route: "):
        assert any(re.match(rf"{time} c\d+ < {answer}", line) for line in lines)
    openings = [line for line in lines if re.match(r"c\d+: ", line)]
    assert any(line.endswith(f" with {broker.broker_address}") for line in openings)
    assert last == f"{len(lines) - len(openings)} frames\n"


def test_json_goes_into_the_file_and_lines_to_the_screen(
    broker: Broker, start: Callable[..., Recorder], tmp_path: Path
) -> None:
    out = tmp_path / "wire.jsonl"
    recorder = start("--namesrv", broker.namesrv_address, "--json", "--out", str(out))
    send(recorder.address, "RecordedToo")
    status, lines, last = recorder.end(signal.SIGTERM)
    assert status == 0, last
    frames = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(frames) == sum(not re.match(r"c\d+: ", line) for line in lines)
    (sent,) = [frame for frame in frames if frame["name"] == "SEND_MESSAGE_V2"]
    assert (sent["dir"], sent["code"], sent["request_code"]) == ("request", 310, 310)
    assert sent["ext_fields"]["b"] == "RecordedToo"
    assert sent["to"] == broker.broker_address
    assert sent["body"] == "aGVsbG8="
    line = frame_line(bytes.fromhex(sent["frame_hex"]))
    assert any(each.endswith(line) for each in lines)
    (answer,) = [
        frame for frame in frames if frame["pair"] == sent["pair"] and frame["dir"] == "response"
    ]
    assert answer["request_code"] == 310


def test_one_broker_alone(broker: Broker, start: Callable[..., Recorder]) -> None:
    recorder = start("--target", broker.broker_address, "--json")
    host, _, port = recorder.address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert connection.recv(1) == b""
    status, lines, last = recorder.end()
    assert (status, last) == (0, "0 frames\n")
    assert [json.loads(line)["error"] for line in lines] == ["no frame"]


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        ((), 2, "give either --namesrv HOST:PORT or --target HOST:PORT"),
        (("--namesrv", "a:1", "--target", "a:2"), 2, "give either"),
        (("--namesrv", "nowhere"), 2, "'nowhere' is not an address of the form host:port"),
        (("--target", "a:1", "--out", "/nowhere/file"), 1, "cannot write /nowhere/file: No such"),
    ],
    ids=["neither", "both", "no-address", "no-folder"],
)
def test_what_cannot_be_is_refused(
    start: Callable[..., Recorder], arguments: tuple[str, ...], status: int, text: str
) -> None:
    recorder = start(*arguments)
    assert text in recorder.first
    assert recorder.process.wait(TIMEOUT_S) == status


def test_a_port_in_use_is_reported(broker: Broker, start: Callable[..., Recorder]) -> None:
    port = broker.broker_address.rpartition(":")[2]
    recorder = start("--namesrv", broker.namesrv_address, "--listen", port)
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in recorder.first
    assert recorder.process.wait(TIMEOUT_S) == 1
