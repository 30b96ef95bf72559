"""Sessions: frames however they are cut, answers in any order, time-outs, ends. No I/O."""

from __future__ import annotations

from itertools import islice
from math import inf

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from trocket.remoting.codec import (
    FRAME_SIZE_MAX,
    ONEWAY_FLAG,
    RemotingCommand,
    decode_frame,
    encode,
)
from trocket.remoting.errors import (
    FrameTooLargeError,
    LocalProtocolError,
    RemotingConnectError,
    RemotingTimeoutError,
)
from trocket.remoting.session import (
    OPAQUE_MAX,
    REQUESTS_MAX,
    Answered,
    Session,
    State,
    Unanswered,
    Unsolicited,
    opaques,
)

ECHO = 900
GARBAGE = b"GET / HTTP/1.1\r\n\r\n"


def session(**options) -> Session[str]:
    return Session("192.0.2.1:10911", **options)


def ask(session: Session[str], waiter: str, **options) -> RemotingCommand:
    """The request as the peer gets it."""
    return decode_frame(session.request(RemotingCommand(ECHO), waiter, **options))


def answer(request: RemotingCommand, code: int = 0) -> bytes:
    return encode(request.answer(code))


def results(events) -> list[tuple[str, int]]:
    """Waiter and response code of answers."""
    assert all(isinstance(each, Answered) for each in events)
    return [(each.waiter, each.answer.code) for each in events]


def texts(events) -> list[tuple[str, type, str]]:
    """Waiter, type and text of errors."""
    assert all(isinstance(each, Unanswered) for each in events)
    return [(each.waiter, type(each.error), str(each.error)) for each in events]


# ---- requests and answers ----------------------------------------------------------------


def test_answers_find_their_requests_in_any_order():
    ours = session()
    a, b, c = (ask(ours, waiter) for waiter in "abc")
    assert [a.opaque, b.opaque, c.opaque] == [1, 2, 3]
    assert results(ours.receive_data(answer(c, 3) + answer(a, 1))) == [("c", 3), ("a", 1)]
    assert results(ours.receive_data(answer(b, 2))) == [("b", 2)]


def test_an_answer_keeps_its_content():
    ours = session()
    request = ask(ours, "a")
    theirs = request.answer(17, "no such topic", {"x": "y"}, b"body")
    (event,) = ours.receive_data(encode(theirs))
    assert event == Answered("a", theirs)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 11, 64])
def test_frames_may_be_cut_anywhere(size):
    ours = session()
    a, b = ask(ours, "a"), ask(ours, "b")
    data = answer(b) + encode(RemotingCommand(40, body=b"x" * 50)) + answer(a)
    events = []
    for start in range(0, len(data), size):
        events += ours.receive_data(data[start : start + size])
        assert (ours.partial_size == 0) == (start + size in ends_of(data))
    assert [type(each) for each in events] == [Answered, RemotingCommand, Answered]
    assert results([events[0], events[2]]) == [("b", 0), ("a", 0)]


def ends_of(data: bytes) -> set[int]:
    ends, end = set(), 0
    while end < len(data):
        end += 4 + int.from_bytes(data[end : end + 4], "big")
        ends.add(end)
    # A piece may reach past the last frame's end.
    return ends | set(range(len(data), len(data) + 64))


def test_requests_of_the_peer_and_answers_keep_their_order():
    ours = session()
    mine = ask(ours, "a")
    first, second = RemotingCommand(40, opaque=1), RemotingCommand(41, opaque=1)
    events = ours.receive_data(encode(first) + answer(mine) + encode(second))
    assert [each.code if isinstance(each, RemotingCommand) else each.waiter for each in events] == [
        40, "a", 41,
    ]  # fmt: skip


def test_a_burst_of_requests_only_is_handed_on_as_it_is():
    requests = [RemotingCommand(ECHO, opaque=n) for n in range(5)]
    assert session().receive_data(b"".join(map(encode, requests))) == requests


def test_a_second_answer_is_unsolicited():
    ours = session()
    request = ask(ours, "a")
    answered, unsolicited = ours.receive_data(answer(request) + answer(request, 5))
    assert results([answered]) == [("a", 0)]
    assert isinstance(unsolicited, Unsolicited)
    assert unsolicited.answer.code == 5


def test_an_answer_without_a_request_is_unsolicited_and_harmless():
    ours = session()
    request = ask(ours, "a")
    stranger = RemotingCommand(0, opaque=77, flag=1)
    assert ours.receive_data(encode(stranger)) == [Unsolicited(stranger)]
    assert results(ours.receive_data(answer(request))) == [("a", 0)]


def test_oneway_requests_wait_for_nothing():
    ours = session()
    oneway = decode_frame(ours.oneway(RemotingCommand(ECHO)))
    assert oneway.flag == ONEWAY_FLAG
    assert oneway.opaque == 1
    assert isinstance(ours.receive_data(answer(oneway))[0], Unsolicited)
    assert ours.close("over") == []


def test_an_answer_to_a_forgotten_request_is_unsolicited():
    ours = session()
    request = ask(ours, "a", timeout_s=1.0)
    ours.forget(request.opaque)
    ours.forget(request.opaque)
    assert ours.expire(2.0) == []
    assert isinstance(ours.receive_data(answer(request))[0], Unsolicited)


def test_a_request_that_cannot_be_written_waits_for_nothing():
    ours = session()
    with pytest.raises(FrameTooLargeError):
        ours.request(RemotingCommand(ECHO, body=bytes(FRAME_SIZE_MAX)), "a")
    with pytest.raises(LocalProtocolError):
        ours.request(RemotingCommand(ECHO, serialize_type=9), "a")
    assert ours.close("over") == []


# ---- opaques -----------------------------------------------------------------------------


def test_opaques_wrap_around_and_stay_int32():
    assert list(islice(opaques(OPAQUE_MAX - 1), 4)) == [OPAQUE_MAX - 1, OPAQUE_MAX, 0, 1]
    ours = session(numbers=opaques(OPAQUE_MAX))
    a, b = ask(ours, "a"), ask(ours, "b")
    assert (a.opaque, b.opaque) == (OPAQUE_MAX, 0)
    assert results(ours.receive_data(answer(b) + answer(a))) == [("b", 0), ("a", 0)]


def test_after_the_wrap_numbers_that_wait_are_passed_over():
    ours = session(numbers=opaques(OPAQUE_MAX))
    for opaque in (0, 1, 3):
        ours.expect(opaque, ECHO, f"old {opaque}")
    assert [ask(ours, "new").opaque for _ in range(3)] == [OPAQUE_MAX, 2, 4]


def test_sessions_may_share_their_numbers():
    numbers = opaques()
    one, other = session(numbers=numbers), session(numbers=numbers)
    assert [ask(one, "a").opaque, ask(other, "b").opaque, ask(one, "c").opaque] == [1, 2, 3]


def test_one_opaque_waits_once():
    ours = session()
    ours.expect(7, ECHO, "a")
    with pytest.raises(LocalProtocolError, match="opaque 7 is waiting"):
        ours.expect(7, ECHO, "b")
    assert results(ours.receive_data(encode(RemotingCommand(0, opaque=7, flag=1)))) == [("a", 0)]
    ours.expect(7, ECHO, "b")


def test_the_number_of_requests_is_bounded():
    ours = session()
    for opaque in range(1, REQUESTS_MAX + 1):
        ours.expect(opaque, ECHO, "a")
    with pytest.raises(RemotingConnectError, match="65535 requests wait for answers"):
        ours.request(RemotingCommand(ECHO), "b")
    ours.forget(1)
    ours.request(RemotingCommand(ECHO), "b")


# ---- time --------------------------------------------------------------------------------


def test_requests_expire_each_at_its_time():
    ours = session()
    ask(ours, "slow", now_s=10.0, timeout_s=5.0)
    ask(ours, "quick", now_s=11.0, timeout_s=1.0)
    ask(ours, "patient")
    assert ours.next_due_s == 12.0
    assert ours.expire(11.9) == []
    (late,) = ours.expire(12.0)
    assert late.waiter == "quick"
    assert isinstance(late.error, RemotingTimeoutError)
    assert (late.error.code, late.error.timeout_s) == (ECHO, 1.0)
    assert str(late.error) == "192.0.2.1:10911 did not answer request 900 within 1.0 s"
    assert ours.next_due_s == 15.0
    assert [each.waiter for each in ours.expire(1e9)] == ["slow"]
    assert ours.next_due_s == inf


def test_an_answer_that_comes_too_late_is_unsolicited():
    ours = session()
    request = ask(ours, "a", now_s=1.0, timeout_s=1.0)
    assert len(ours.expire(2.0)) == 1
    assert isinstance(ours.receive_data(answer(request))[0], Unsolicited)
    assert ours.expire(3.0) == []


def test_what_was_answered_does_not_expire():
    ours = session()
    request = ask(ours, "a", now_s=1.0, timeout_s=1.0)
    ours.receive_data(answer(request))
    assert ours.expire(5.0) == []
    assert ours.next_due_s == inf


# ---- ends --------------------------------------------------------------------------------


def test_good_frames_before_a_bad_one_count_and_nothing_after_it():
    ours = session()
    a, b = ask(ours, "a"), ask(ours, "b")
    assert results(ours.receive_data(answer(a) + GARBAGE + answer(b))) == [("a", 0)]
    assert ours.state is State.FAILED
    assert "HTTP" in str(ours.error)
    assert ours.receive_data(answer(b)) == []
    with pytest.raises(RemotingConnectError, match="HTTP"):
        ours.request(RemotingCommand(ECHO), "c")
    assert texts(ours.close("a bad frame")) == [
        ("b", RemotingConnectError, "192.0.2.1:10911: a bad frame"),
    ]
    assert ours.state is State.CLOSED


def test_a_frame_larger_than_allowed_fails_the_session():
    ours = session(frame_size_max=100)
    assert ours.receive_data(encode(RemotingCommand(ECHO, body=bytes(100)))) == []
    assert ours.state is State.FAILED


def test_the_end_is_the_end_of_every_request_once():
    ours = session()
    a, b = ask(ours, "a", timeout_s=1.0), ask(ours, "b")
    assert texts(ours.eof()) == [
        (waiter, RemotingConnectError, "192.0.2.1:10911: closed by the peer") for waiter in "ab"
    ]
    assert ours.state is State.CLOSED
    assert ours.next_due_s == inf
    assert ours.eof() == ours.close("again") == ours.expire(9.0) == []
    assert ours.receive_data(answer(a) + answer(b)) == []
    assert ours.close_reason == "closed by the peer"
    with pytest.raises(RemotingConnectError, match="closed by the peer"):
        ours.request(RemotingCommand(ECHO), "c")
    with pytest.raises(RemotingConnectError, match="closed by the peer"):
        ours.expect(5, ECHO, "c")


def test_an_end_within_a_frame_says_so_and_frees_it():
    ours = session()
    ours.receive_data(encode(RemotingCommand(ECHO, body=bytes(1000)))[:500])
    assert ours.partial_size == 500
    ours.eof()
    assert ours.partial_size == 0
    assert ours.close_reason == "closed by the peer in the middle of a frame, after 500 bytes of it"


def test_errors_are_not_shared():
    """Each is raised in another task, with another traceback."""
    ours = session()
    ask(ours, "a")
    ask(ours, "b")
    one, other = ours.close("over")
    assert one.error is not other.error


# ---- two sessions, joined by bytes -------------------------------------------------------


class TwoSessions(RuleBasedStateMachine):
    """A client's session and a server's: every request ends once, with what is its own."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.client = Session("server", numbers=opaques(OPAQUE_MAX - 3))
        self.server = Session("client")
        self.to_server, self.to_client = bytearray(), bytearray()
        self.asked: list[RemotingCommand] = []
        self.due: dict[int, float] = {}
        """By waiter, of those that have not ended."""
        self.count = 0

    @precondition(lambda self: self.client.state is State.OPEN)
    @rule(timeout_s=st.sampled_from([1.0, 2.0, inf]), serialize_type=st.integers(0, 1))
    def request(self, timeout_s, serialize_type):
        self.count += 1
        command = RemotingCommand(
            ECHO, {"n": str(self.count)}, b"x" * (self.count % 40), serialize_type=serialize_type
        )
        self.to_server += self.client.request(command, self.count, self.now_s, timeout_s)
        self.due[self.count] = self.now_s + timeout_s

    @precondition(lambda self: self.client.state is not State.CLOSED)
    @rule()
    def oneway(self):
        self.to_server += self.client.oneway(RemotingCommand(ECHO, {"n": "oneway"}))

    @rule(size=st.integers(1, 200))
    def carry_to_server(self, size):
        data = bytes(self.to_server[:size])
        del self.to_server[:size]
        for event in self.server.receive_data(data):
            assert isinstance(event, RemotingCommand)
            if not event.is_oneway:
                self.asked.append(event)

    @rule(size=st.integers(1, 200))
    def carry_to_client(self, size):
        data = bytes(self.to_client[:size])
        del self.to_client[:size]
        for event in self.client.receive_data(data):
            if isinstance(event, Answered):
                assert event.answer.ext_fields["n"] == str(event.waiter)
                assert event.waiter in self.due
                del self.due[event.waiter]
            else:
                assert isinstance(event, Unsolicited)
                assert int(event.answer.ext_fields["n"]) not in self.due

    @precondition(lambda self: self.asked)
    @rule(which=st.integers(0, 100), twice=st.booleans())
    def answer(self, which, twice):
        request = self.asked.pop(which % len(self.asked))
        frame = encode(request.answer(0, None, request.ext_fields, request.body))
        self.to_client += frame * (1 + twice)

    @rule(seconds=st.sampled_from([0.5, 1.0]))
    def pass_time(self, seconds):
        self.now_s += seconds
        late = {waiter for waiter, due_s in self.due.items() if due_s <= self.now_s}
        for event in self.client.expire(self.now_s):
            assert isinstance(event.error, RemotingTimeoutError)
            late.remove(event.waiter)
            del self.due[event.waiter]
        assert not late

    @precondition(lambda self: self.count > 5)
    @rule(how=st.sampled_from(["eof", "close", "garbage"]))
    def end(self, how):
        if how == "garbage":
            self.to_client += bytes([255] * 8)
            return
        ended = self.client.eof() if how == "eof" else self.client.close("by us")
        for event in ended:
            assert isinstance(event.error, RemotingConnectError)
            del self.due[event.waiter]
        assert not self.due

    @invariant()
    def next_due_is_never_after_the_first(self):
        assert self.client.next_due_s <= min(self.due.values(), default=inf)


TwoSessions.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestTwoSessions = TwoSessions.TestCase
