"""Scripts on a server that the test plays: what comes back, what does not, and what is asked."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from trocket.interop.report.cells import Cell, Kind, Verdict
from trocket.interop.wire_differ import known_bugs
from trocket.interop.wire_differ.differ import Differ, found_between
from trocket.interop.wire_differ.normalise import Side
from trocket.interop.wire_differ.player import Outcome, Player
from trocket.interop.wire_differ.request import (
    BodyKind,
    ClientAnswer,
    FromServer,
    Request,
    Script,
    Step,
    answer_field,
)
from trocket.remoting.codec import FrameDecoder, RemotingCommand, SerializeType, encode
from trocket.remoting.request_codes import RequestCode as Code

Serve = Callable[[RemotingCommand], list[RemotingCommand] | None]
"""What goes back for a request or an answer; None: the connection is closed."""


@contextlib.contextmanager
def serving(serve: Serve) -> Iterator[str]:
    """The address of a server that answers as the script says."""
    listener = socket.create_server(("127.0.0.1", 0))
    threads: list[threading.Thread] = []

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threads.append(threading.Thread(target=talk, args=(connection,)))
                threads[-1].start()

    def talk(connection: socket.socket) -> None:
        decoder = FrameDecoder()
        with connection, contextlib.suppress(OSError):
            while data := connection.recv(65_536):
                for command in decoder.receive_data(data):
                    answers = serve(command)
                    if answers is None:
                        return
                    for answer in answers:
                        connection.sendall(encode(answer))

    thread = threading.Thread(target=accept)
    thread.start()
    host, port = listener.getsockname()
    try:
        yield f"{host}:{port}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for each in (thread, *threads):
            each.join(5)


def play(serve: Serve, *steps: Step, header: SerializeType = SerializeType.JSON) -> list[Outcome]:
    """The outcomes of steps on such a server, in the order of their features."""
    script = Script("s", header, steps)
    with serving(serve) as address:
        outcomes = Player(Side("apache-5.5.0", address, address)).play(script)
    return [outcomes[name] for name, _ in script.features()]


def echo(command: RemotingCommand) -> list[RemotingCommand]:
    return [command.answer(0, None, {**command.ext_fields, "seen": "yes"}, command.body)]


@pytest.mark.parametrize("header", list(SerializeType))
def test_an_answer_is_a_tree_and_later_requests_take_of_it(header):
    first, second = play(
        echo,
        Request("one", Code.PULL_MESSAGE, {"a": 1, "b": True}, b'{"x":1}', body_kind=BodyKind.JSON),
        Request("two", Code.PULL_MESSAGE, {"again": answer_field("one", "a")}),
        header=header,
    )
    assert first.tree["fields"] == {"a": "1", "b": "true", "seen": "yes"}
    assert first.tree["body"] == {"x": 1}
    assert second.tree["fields"] == {"again": "1", "seen": "yes"}
    assert (first.code, first.broken) == (0, "")


def test_a_connection_that_is_closed_is_an_outcome_and_the_next_step_connects_again():
    seen: list[int] = []

    def serve(command: RemotingCommand) -> list[RemotingCommand] | None:
        seen.append(command.code)
        return None if len(seen) == 1 else echo(command)

    first, second = play(serve, Request("a", Code.HEART_BEAT), Request("b", Code.PULL_MESSAGE))
    assert first.broken == "the server closed the connection"
    assert (second.broken, second.code) == ("", 0)


def test_nobody_there_is_an_outcome():
    script = Script("s", SerializeType.JSON, (Request("a", Code.HEART_BEAT),))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (outcome,) = Player(Side("trocket", f"127.0.0.1:{port}", "")).play(script).values()
    assert outcome.broken.startswith("cannot connect to 127.0.0.1:")


def test_a_request_is_repeated_until_its_answer_is_the_one():
    counts = iter(range(100))

    def serve(command: RemotingCommand) -> list[RemotingCommand]:
        return [command.answer(0, None, {"count": str(next(counts))})]

    request = Request("a", Code.GET_MAX_OFFSET, until=lambda a: a.ext_fields["count"] == "3")
    (outcome,) = play(serve, request)
    assert outcome.tree["fields"] == {"count": "3"}


def test_the_client_is_asked_while_a_request_waits():
    waiting: list[RemotingCommand] = []

    def serve(command: RemotingCommand) -> list[RemotingCommand]:
        if command.is_response:
            return [waiting[0].answer(command.code, None, {}, command.body)]
        waiting.append(command)
        return [RemotingCommand(Code.GET_CONSUMER_RUNNING_INFO, {"q": "1"}, opaque=77)]

    asked = FromServer(
        name="asked",
        code=Code.GET_CONSUMER_RUNNING_INFO,
        connection="main",
        answer=ClientAnswer(code=5, body=b"state"),
    )
    outer, inner = play(serve, Request("a", Code.GET_CONSUMER_RUNNING_INFO, meanwhile=(asked,)))
    assert inner.tree["fields"] == {"q": "1"}
    assert (outer.code, outer.tree["body"]) == (5, "state")


def test_a_oneway_request_that_is_answered_is_reported():
    oneway = Request("a", Code.HEART_BEAT, oneway=True, expect=None)
    after = Request("b", Code.PULL_MESSAGE)
    assert play(echo, oneway, after)[0].broken == "it was answered"
    quiet = play(lambda command: [] if command.is_oneway else echo(command), oneway, after)
    assert quiet[0].broken == ""


def test_both_must_answer_as_expected_and_alike():
    step = Request("a", Code.HEART_BEAT, expect=0)
    good = Outcome({"code": 0}, 0)
    assert found_between(step, good, good) == []
    assert [str(found) for found in found_between(step, good, Outcome({"code": 1}, 1))] == [
        "code: 0 / 1"
    ]
    both_wrong = Outcome({"code": 1}, 1)
    (found,) = found_between(step, both_wrong, both_wrong)
    assert "expected 0" in str(found)
    (found,) = found_between(step, good, Outcome(broken="closed"))
    assert (found.path, found.second) == (("connection",), "closed")


class FakeCluster:
    """A cluster that runs already."""

    def __init__(self, name: str, address: str) -> None:
        self.label = name
        self.namesrv_address = self.broker_address = address

    def start(self) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("change", "verdict", "detail"),
    [
        ({}, Verdict.PASSED, ""),
        ({"seen": "no"}, Verdict.FAILED, "fields.seen: 'yes' / 'no'"),
        ({"more": "1"}, Verdict.FAILED, "fields.more: absent / '1'"),
        ({"known": "1"}, Verdict.QUIRK, "the row"),
    ],
)
def test_a_changed_field_is_a_failed_cell_unless_it_is_known(
    change, verdict, detail, monkeypatch, tmp_path
):
    bug = known_bugs.KnownBug(
        requests=("34: a",), paths=("fields.known",), row="the row", source="s", ours_absent=True
    )
    monkeypatch.setattr("trocket.interop.wire_differ.differ.KNOWN_BUGS", (bug,))
    script = Script("s", SerializeType.JSON, (Request("a", Code.HEART_BEAT),))
    ((name, _),) = script.features()
    owed = [
        Cell(Kind.WIRE, feature, "wire", "x", Verdict.SKIPPED)
        for feature in (name, "known differences: each of them is there")
    ]

    def changed(command: RemotingCommand) -> list[RemotingCommand]:
        (answer,) = echo(command)
        return [command.answer(0, None, {**answer.ext_fields, **change})]

    cells: list[Cell] = []
    with serving(echo) as first, serving(changed) as second:
        addresses = {"trocket": first, "apache-5.5.0": second}
        monkeypatch.setattr(
            "trocket.interop.wire_differ.differ.open_cluster",
            lambda peer, folder, keys: FakeCluster(peer, addresses[peer]),
        )
        Differ("trocket", "apache-5.5.0", [script], owed, cells.append).play(tmp_path)
    request, needed = cells
    assert (request.verdict, request.detail) == (verdict, detail)
    assert bool(request.frames) is (verdict is Verdict.FAILED)
    assert needed.verdict is (Verdict.PASSED if verdict is Verdict.QUIRK else Verdict.FAILED)
