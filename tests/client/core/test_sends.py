"""client/core/sends.py: the tries of one send, without a loop, a clock or a socket."""

from __future__ import annotations

import pytest

from trocket.client.core.routes import TopicPublishInfo
from trocket.client.core.sends import RETRY_CODES, TRY_TIME_MIN_S, PreparedSend, Send, SendPolicy
from trocket.client.errors import (
    BadAnswerError,
    ClosedError,
    ConfigurationError,
    ConnectError,
    RequestTimeoutError,
    SendError,
    ServerError,
)
from trocket.client.messages.message import Message, MessageQueue, SendStatus
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.response_codes import ResponseCode
from trocket.remoting.send_template import SendPayload, SendTemplate

TOPIC = "T"
STORED_FIELDS = {"queueId": "0", "queueOffset": "7", "msgId": "OFFSET_ID"}
STORED = RemotingCommand(ResponseCode.SUCCESS, STORED_FIELDS)
SLOW_FLUSH = RemotingCommand(ResponseCode.FLUSH_DISK_TIMEOUT, STORED_FIELDS)
BUSY = RemotingCommand(ResponseCode.SYSTEM_BUSY, remark="later")
ILLEGAL = RemotingCommand(ResponseCode.MESSAGE_ILLEGAL, remark="no")
GONE = ConnectError("broker:1", "gone")


def info(*brokers: str) -> TopicPublishInfo:
    return TopicPublishInfo(TOPIC, tuple(MessageQueue(TOPIC, name, 0) for name in brokers), False)


def new_send(
    *,
    timeout_s=3.0,
    queue=None,
    selector=None,
    start_s=100.0,
    key=None,
    try_timeout_s=None,
    **changed,
):
    policy = SendPolicy(
        **{
            "retry_times": 2,
            "retry_when_not_stored_ok": False,
            "send_latency_fault_enable": False,
            "first_index": lambda: -1,
        }
        | changed
    )
    message = Message(TOPIC, "body", sharding_key=key)
    payload = SendPayload(b"", b"body", 0, 1)
    prepared = PreparedSend(message, TOPIC, "ID", SendTemplate(TOPIC, "G"), payload)
    return Send(prepared, policy, start_s, timeout_s, queue, selector, try_timeout_s)


def outcome(one: Send):
    """The result of a send that is over, or its error raised."""
    if one.error is not None:
        raise one.error
    return one.result


def try_once(one: Send, answer, *, now_s=100.0, took_s=0.0, brokers=("a", "b")) -> bool:
    """One try; True: the send is over."""
    one.choose(info(*brokers), now_s)
    one.begin(now_s)
    one.address = "broker:1"
    return one.take(answer, now_s + took_s)


def test_a_stored_message_is_over_and_its_result_is_that_of_the_answer():
    one = new_send()
    assert try_once(one, STORED)
    result = outcome(one)
    assert (result.status, result.message_id, result.queue_offset) == (SendStatus.SEND_OK, "ID", 7)
    assert one.attempts == ()
    assert one.failure is None


def test_a_failed_try_goes_to_another_broker_until_no_try_is_left():
    one = new_send()
    assert not try_once(one, BUSY)
    assert not try_once(one, GONE)
    assert try_once(one, BUSY, took_s=0.5)
    assert [attempt.broker_name for attempt in one.attempts] == ["a", "b", "a"]
    assert one.attempts[2].elapsed_s == 0.5
    with pytest.raises(SendError, match="in 3 tries") as caught:
        outcome(one)
    assert caught.value.__cause__ is one.attempts[2].error


def test_a_try_after_a_failure_may_succeed():
    one = new_send()
    assert not try_once(one, BUSY)
    assert one.failure is one.attempts[0].error
    assert try_once(one, STORED)
    assert one.failure is None
    assert outcome(one).status is SendStatus.SEND_OK


def test_a_refusal_that_another_try_does_not_change_is_raised_as_it_is():
    assert ResponseCode.MESSAGE_ILLEGAL not in RETRY_CODES
    one = new_send()
    assert try_once(one, ILLEGAL)
    with pytest.raises(ServerError, match="MESSAGE_ILLEGAL"):
        outcome(one)


def test_what_is_no_brokers_fault_is_raised_as_it_is_and_is_no_attempt():
    one = new_send()
    closed = ClosedError("the client is closed")
    assert try_once(one, closed)
    assert one.attempts == ()
    with pytest.raises(ClosedError) as caught:
        outcome(one)
    assert caught.value is closed


def test_a_stored_message_whose_answer_cannot_be_read_is_not_stored_twice():
    one = new_send()
    assert try_once(one, RemotingCommand(ResponseCode.SUCCESS, {"queueId": "x"}))
    with pytest.raises(BadAnswerError):
        outcome(one)


@pytest.mark.parametrize("retry_times", [0, 1])
def test_a_status_that_is_not_ok_is_a_result_or_another_try(retry_times):
    assert try_once(new_send(retry_times=retry_times), SLOW_FLUSH)
    one = new_send(retry_times=retry_times, retry_when_not_stored_ok=True)
    for _ in range(retry_times):
        assert not try_once(one, SLOW_FLUSH)
    assert try_once(one, SLOW_FLUSH)
    assert outcome(one).status is SendStatus.FLUSH_DISK_TIMEOUT


# The queue


def test_a_message_for_a_certain_queue_is_tried_once():
    queue = MessageQueue(TOPIC, "b", 0)
    ways = [{"queue": queue}, {"selector": lambda queues, message: queues[1]}, {"key": "order"}]
    for way in ways:
        one = new_send(**way)
        assert try_once(one, BUSY)
        with pytest.raises(SendError, match="in 1 tries"):
            outcome(one)


def test_a_selector_is_asked_once():
    asked = []

    def selector(queues, message):
        asked.append(message)
        return queues[0]

    one = new_send(selector=selector)
    for _ in range(2):  # the quick way finds no connection, and the slow one goes on
        one.choose(info("a", "b"), 100.0)
    assert len(asked) == 1


def test_a_queue_of_another_topic_is_refused():
    with pytest.raises(ConfigurationError, match="a queue of U for a message to T"):
        new_send(queue=MessageQueue("U", "a", 0)).choose(info("a"), 100.0)


# The time


def test_all_tries_share_the_time():
    one = new_send(timeout_s=3.0)
    one.choose(info("a", "b"), 100.0)
    assert one.begin(101.0) == 2.0
    assert not one.take(RequestTimeoutError("SEND", "a", 2.0), 103.0)
    one.choose(info("a", "b"), 103.0)
    with pytest.raises(SendError, match="in 1 tries"):
        one.begin(103.0)
    one.restart(103.0)
    assert one.begin(103.0) == 3.0


def test_the_first_try_is_made_even_if_its_time_is_over():
    one = new_send(timeout_s=3.0)
    one.choose(info("a"), 100.0)
    assert one.begin(110.0) == TRY_TIME_MIN_S


@pytest.mark.parametrize(
    ("brokers", "failure", "now_s", "pause_s"),
    [
        (("a",), GONE, 100.0, 0.1),
        (("a",), GONE, 102.9, 0.025),  # the tries that are left have their time
        (("a",), GONE, 104.0, 0.0),
        (("a",), BUSY, 100.0, 0.0),  # it is there
        (("a", "b"), GONE, 100.0, 0.0),  # there is another one
    ],
)
def test_only_a_broker_that_was_not_there_and_has_no_other_beside_it_is_waited_for(
    brokers, failure, now_s, pause_s
):
    one = new_send()
    one.choose(info(*brokers), 100.0)
    assert one.pause_s(100.0) == 0.0
    assert not try_once(one, failure, brokers=brokers)
    one.choose(info(*brokers), now_s)
    assert one.pause_s(now_s) == pytest.approx(pause_s)


def test_each_pause_is_twice_as_long_as_the_one_before():
    one = new_send(timeout_s=100.0, retry_times=5)
    pauses = []
    for _ in range(3):
        assert not try_once(one, GONE, brokers=("a",))
        one.choose(info("a"), 100.0)
        pauses.append(one.pause_s(100.0))
    assert pauses == pytest.approx([0.1, 0.2, 0.4])


def test_a_broker_that_cannot_be_reached_is_tried_until_the_deadline():
    one = new_send(timeout_s=10.0, waits_for_broker=True)
    now_s, pauses = 100.0, []
    while now_s < 110.0:
        assert not try_once(one, GONE, now_s=now_s, brokers=("a",))
        one.choose(info("a"), now_s)
        pauses.append(one.pause_s(now_s))
        now_s += pauses[-1]
    with pytest.raises(SendError, match=r"in 13 tries: 1\. to 13\. a: .*gone") as caught:
        one.begin(now_s)
    assert pauses[:6] == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])
    assert now_s == pytest.approx(110.0)
    assert len(str(caught.value)) < 200


def test_other_failures_are_counted_apart_from_unreachable_brokers():
    one = new_send(waits_for_broker=True, retry_times=1)
    assert not try_once(one, GONE)
    assert not try_once(one, GONE)
    assert not try_once(one, BUSY)
    assert try_once(one, BUSY)


def test_two_brokers_that_are_both_gone_are_tried_in_turn_with_pauses():
    one = new_send(waits_for_broker=True)
    pauses = []
    for _ in range(3):
        assert not try_once(one, GONE)
        one.choose(info("a", "b"), 100.0)
        pauses.append(one.pause_s(100.0))
    assert pauses == pytest.approx([0.0, 0.2, 0.4])


def test_one_try_has_a_part_of_the_time():
    one = new_send(timeout_s=10.0, try_timeout_s=3.0)
    one.choose(info("a"), 100.0)
    assert one.begin(100.0) == 3.0
    assert one.begin(108.0) == 2.0


def test_brokers_that_answer_late_are_avoided_where_that_is_wanted():
    policy = SendPolicy(
        2, retry_when_not_stored_ok=False, send_latency_fault_enable=True, first_index=lambda: -1
    )
    policy.note("a", 4.0, 100.0, is_failed=False)
    chosen = {policy.select(info("a", "b"), None, 100.0).broker_name for _ in range(4)}
    assert chosen == {"b"}
