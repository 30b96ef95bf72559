"""client/grpc/translator.py: routes, sends, members, and how requests and connections end."""

from __future__ import annotations

import hashlib
import hmac
import json

import pytest

from trocket import Credentials
from trocket.client.grpc.telemetry import OPEN_S, REOPEN_S, SETTINGS_S
from trocket.client.grpc.translator import PONG_S
from trocket.grpc_protocol.enums import ClientType, Code, MessageType
from trocket.grpc_protocol.session import GrpcStatus
from trocket.remoting.bodies import (
    MessageQueue,
    MessageRequestMode,
    ProducerData,
    QueryAssignmentResponseBody,
    TopicRouteData,
)
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.errors import RemotingConnectError, RemotingTimeoutError
from trocket.remoting.headers import UnregisterClientRequestHeader
from trocket.remoting.headers.base import encode_header
from trocket.remoting.request_codes import RequestCode
from trocket.remoting.response_codes import ResponseCode
from trocket.remoting.session import State, Unanswered

from .translated import (
    ADDRESS,
    GROUP,
    NOTHING,
    NOW_MS,
    OK,
    TOPIC,
    World,
    consumer,
    heartbeat,
    pop_command,
    send_command,
)


@pytest.fixture
def world() -> World:
    return World()


# ---- routes ------------------------------------------------------------------------------


def test_a_route_has_the_queues_of_masters_at_the_endpoint(world: World):
    world.ask(RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "ns%T"}))
    request, call = world.asked("QueryRoute")
    assert (request.topic.resource_namespace, request.topic.name) == ("ns", "T")
    assert [(each.host, each.port) for each in request.endpoints.addresses] == [("192.0.2.1", 8081)]
    there = {"scheme": 3, "addresses": [{"host": "b.example", "port": 80}]}
    queues = [
        {"id": 0, "permission": 2, "broker": {"name": "a", "endpoints": request.endpoints}},
        {"id": 1, "permission": 4, "broker": {"name": "a", "endpoints": request.endpoints}},
        {"id": 0, "permission": 4, "broker": {"name": "b", "endpoints": there}},
        {"id": 0, "permission": 4, "broker": {"name": "b", "id": 1, "endpoints": there}},
    ]
    world.answer(call, status=OK, message_queues=queues)
    route = TopicRouteData.from_body(world.answered().body)
    assert [
        (each.broker_name, each.read_queue_nums, each.write_queue_nums, each.perm)
        for each in route.queue_datas
    ] == [("a", 2, 1, 6), ("b", 1, 1, 6)]
    assert [each.broker_addrs for each in route.broker_datas] == [{0: ADDRESS}, {0: "b.example:80"}]


@pytest.mark.parametrize("topic", ["TBW102", "%RETRY%G"])
def test_topics_that_only_brokers_have_are_not_asked_for(world: World, topic: str):
    world.ask(RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}))
    assert world.calls == []
    assert world.answered().code == ResponseCode.TOPIC_NOT_EXIST


def test_an_assignment_is_popped(world: World):
    body = json.dumps({"topic": TOPIC, "consumerGroup": GROUP, "clientId": "me@1"}).encode()
    world.ask(RemotingCommand(RequestCode.QUERY_ASSIGNMENT, body=body))
    _, call = world.asked("QueryAssignment")
    world.answer(
        call, status=OK, assignments=[{"message_queue": {"id": -1, "broker": {"name": "b"}}}]
    )
    answer = QueryAssignmentResponseBody.from_body(world.answered().body)
    assert answer.message_queue_assignments is not None
    (assignment,) = answer.message_queue_assignments
    assert assignment.message_queue == MessageQueue(TOPIC, "b", -1)
    assert assignment.mode is MessageRequestMode.POP


# ---- sends -------------------------------------------------------------------------------


def test_a_send_has_the_fields_of_its_message(world: World):
    properties = {
        "TAGS": "a", "KEYS": "k1 k2", "colour": "red", "__SHARDINGKEY": "one",
        "TIMER_DELAY_MS": "1500",
    }  # fmt: skip
    world.ask(send_command(properties, b"\0body"))
    request, call = world.asked("SendMessage")
    (message,) = request.messages
    system = message.system_properties
    assert (message.topic.resource_namespace, message.topic.name) == ("ns", "T")
    assert (message.body, dict(message.user_properties)) == (b"\0body", {"colour": "red"})
    assert (system.tag, list(system.keys), system.message_id) == ("a", ["k1", "k2"], "ID")
    assert system.message_group == "one"
    assert system.delivery_timestamp.ToMilliseconds() == NOW_MS + 1_500
    assert system.born_timestamp.ToMilliseconds() == NOW_MS
    assert system.message_type == MessageType.DELAY
    assert call.metadata["x-mq-client-id"] == "me@1"
    entry = {"status": OK, "message_id": "ID", "offset": 9, "recall_handle": "handle"}
    world.answer(call, status=OK, entries=[entry])
    fields = world.answered().ext_fields
    assert (fields["queueId"], fields["queueOffset"]) == ("-1", "9")
    assert fields["recallHandle"] == "handle"
    assert "transactionId" not in fields


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (Code.TOPIC_NOT_FOUND, ResponseCode.TOPIC_NOT_EXIST),
        (Code.MESSAGE_BODY_TOO_LARGE, ResponseCode.MESSAGE_ILLEGAL),
        (Code.TOO_MANY_REQUESTS, ResponseCode.SYSTEM_BUSY),
        (Code.FORBIDDEN, ResponseCode.NO_PERMISSION),
        (Code.MASTER_PERSISTENCE_TIMEOUT, ResponseCode.FLUSH_DISK_TIMEOUT),
        (12345, ResponseCode.SYSTEM_ERROR),
    ],
)
def test_a_refused_entry_is_the_answer(world: World, code: int, expected: int):
    world.ask(send_command(NOTHING))
    _, call = world.asked("SendMessage")
    entries = [{"status": OK}, {"status": {"code": code, "message": "so"}}]
    world.answer(call, status={"code": Code.MULTIPLE_RESULTS}, entries=entries)
    answer = world.answered()
    assert answer.code == expected
    assert answer.remark is not None
    assert answer.remark.startswith("so (")


def test_a_property_without_a_counterpart_is_refused(world: World):
    world.ask(send_command({"DELAY": "3"}))
    answer = world.answered()
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert answer.remark == "a message of the gRPC protocol cannot have the property DELAY"


def test_calls_are_signed_by_the_account():
    world = World(credentials=Credentials("access", "secret", "token"), namespace="ns")
    world.ask(send_command(NOTHING))
    _, call = world.asked("SendMessage")
    metadata = call.metadata
    assert metadata["x-mq-date-time"] == "20261128T071320Z"
    assert metadata["x-mq-namespace"] == "ns"
    assert metadata["x-mq-session-token"] == "token"
    assert metadata["authorization"] == (
        "MQv2-HMAC-SHA1 Credential=access, SignedHeaders=x-mq-date-time, "
        "Signature=" + hmac_of("secret", "20261128T071320Z")
    )
    assert call.timeout_s == 3.0


def hmac_of(secret: str, date: str) -> str:
    return hmac.new(secret.encode(), date.encode(), hashlib.sha1).hexdigest().upper()


# ---- members -----------------------------------------------------------------------------


def test_a_heartbeat_begins_with_the_settings_and_members_have_ids_of_their_own(world: World):
    world.ask(send_command(NOTHING))
    world.calls.clear()
    world.ask(heartbeat(producers=[ProducerData(group_name="PG")], consumers=[consumer()]))
    produced, first = world.asked("Telemetry")
    consumed, second = world.asked("Telemetry")
    assert produced.settings.client_type == ClientType.PRODUCER
    assert [each.name for each in produced.settings.publishing.topics] == ["T"]
    assert consumed.settings.client_type == ClientType.SIMPLE_CONSUMER
    assert consumed.settings.subscription.group.name == GROUP
    ids = [call.metadata["x-mq-client-id"] for call in (first, second)]
    assert ids == ["me@1", "me@1@1"]
    assert world.take() == []
    world.answer(first, status=OK, settings={"publishing": {}})
    world.answer(second, settings={"subscription": {}})  # the status is optional
    for expected in (ClientType.PRODUCER, ClientType.SIMPLE_CONSUMER):
        beat, call = world.asked("Heartbeat")
        assert beat.client_type == expected
        assert world.take() == []
        world.answer(call, status=OK)
    assert world.answered().code == ResponseCode.SUCCESS


def test_a_new_topic_and_time_send_the_settings_again(world: World):
    telemetry = world.announce()
    world.pass_time(SETTINGS_S)
    world.ask(heartbeat(consumers=[consumer()]))
    settings, again = world.asked("Telemetry")
    assert again is telemetry
    assert settings.settings.subscription.group.name == GROUP
    world.ask(heartbeat(producers=[ProducerData(group_name="PG")]))
    world.asked("Heartbeat")
    _, produced = world.asked("Telemetry")
    world.ask(send_command(NOTHING))
    settings, call = world.asked("Telemetry")
    assert call is produced
    assert [each.name for each in settings.settings.publishing.topics] == ["T"]
    world.asked("SendMessage")


def test_settings_that_are_refused_fail_the_heartbeat_and_say_why_to_pops(world: World):
    world.ask(heartbeat(consumers=[consumer()]))
    _, telemetry = world.asked("Telemetry")
    world.server.finish(telemetry, GrpcStatus.INVALID_ARGUMENT, "group not found: G")
    assert "does not take the settings of G: group not found: G" in str(world.answered().remark)
    world.ask(pop_command(0))
    answer = world.answered()
    assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert "group not found: G" in str(answer.remark)


def test_a_stream_that_ends_is_opened_anew_with_growing_pauses(world: World):
    telemetry = world.announce()
    for pause_s in (*REOPEN_S, REOPEN_S[-1]):
        world.server.finish(telemetry, GrpcStatus.UNAVAILABLE, "restarting")
        world.take()
        world.pass_time(pause_s - 0.01)
        assert world.calls == []
        world.pass_time(0.02)
        _, telemetry = world.asked("Telemetry")
    world.answer(telemetry, status=OK, settings={"subscription": {}})
    world.server.finish(telemetry)
    world.take()
    world.pass_time(REOPEN_S[0] + 0.01)  # it was fine in between
    world.asked("Telemetry")


def test_a_server_that_answers_no_settings_gets_another_stream(world: World):
    world.ask(heartbeat(consumers=[consumer()]))
    world.asked("Telemetry")
    (timed_out,) = world.pass_time(3)
    assert isinstance(timed_out.error, RemotingTimeoutError)
    world.pass_time(OPEN_S)
    world.ask(heartbeat(consumers=[consumer()]))
    assert world.cancelled == ["Telemetry"]
    world.asked("Telemetry")


def test_a_member_leaves_by_a_call_and_its_stream_ends(world: World):
    world.announce()
    header = UnregisterClientRequestHeader(client_id="me@1", consumer_group=GROUP)
    command = RemotingCommand(RequestCode.UNREGISTER_CLIENT, encode_header(header))
    world.ask(command)
    request, call = world.asked("NotifyClientTermination")
    assert request.group.name == GROUP
    world.answer(call, status=OK)
    assert world.answered().code == ResponseCode.SUCCESS
    assert world.cancelled == ["Telemetry"]
    assert world.pass_time(100) == []
    assert world.calls == []


# ---- ends --------------------------------------------------------------------------------


def test_a_request_times_out_and_a_silent_server_is_given_up(world: World):
    world.ask(send_command(NOTHING), timeout_s=3.0)
    _, _call = world.asked("SendMessage")
    assert world.pass_time(2.9) == []
    (event,) = world.pass_time(0.2)
    assert isinstance(event, Unanswered)
    assert isinstance(event.error, RemotingTimeoutError)
    assert world.cancelled == ["SendMessage"]
    # Its server answers the ping.
    world.pass_time(PONG_S + 1)
    assert world.translator.state is State.OPEN
    world.translator.expect(90, RequestCode.SEND_MESSAGE_V2, "90", world.now_s, 30.0)
    world.now_s += 30
    world.translator.expire(world.now_s)
    world.translator.output()  # and now nothing comes back
    world.now_s += PONG_S
    assert world.translator.next_due_s <= world.now_s
    world.translator.expire(world.now_s)
    assert world.translator.state is State.FAILED
    assert str(world.translator.error) == "no answer to a ping within 5 s"


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (GrpcStatus.UNIMPLEMENTED, ResponseCode.REQUEST_CODE_NOT_SUPPORTED),
        (GrpcStatus.UNAVAILABLE, ResponseCode.SERVICE_NOT_AVAILABLE),
        (GrpcStatus.UNAUTHENTICATED, ResponseCode.NO_PERMISSION),
        (GrpcStatus.INTERNAL, ResponseCode.SYSTEM_ERROR),
    ],
)
def test_a_status_of_grpc_is_an_answer(world: World, status: GrpcStatus, code: int):
    world.ask(send_command(NOTHING))
    _, call = world.asked("SendMessage")
    world.server.finish(call, status, "why")
    answer = world.answered()
    assert (answer.code, answer.remark) == (code, f"why (gRPC status {status.name})")


def test_a_deadline_that_the_server_notices_first_is_a_time_out(world: World):
    world.ask(send_command(NOTHING))
    _, call = world.asked("SendMessage")
    world.server.finish(call, GrpcStatus.DEADLINE_EXCEEDED)
    (event,) = world.take()
    assert isinstance(event.error, RemotingTimeoutError)


def test_a_message_that_cannot_be_read_is_an_error_of_its_call(world: World):
    world.ask(send_command(NOTHING))
    _, call = world.asked("SendMessage")
    world.server.answer(call, b"\xff no protobuf")
    answer = world.answered()
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "cannot be read" in str(answer.remark)


def test_waiting_requests_get_the_reason_of_the_end(world: World):
    world.ask(send_command(NOTHING))
    unanswered = world.translator.close("the cable was cut")
    assert [type(each.error) for each in unanswered] == [RemotingConnectError]
    assert world.translator.close("again") == []
    with pytest.raises(RemotingConnectError, match="the cable was cut"):
        world.ask(send_command(NOTHING))


@pytest.mark.parametrize("code", [RequestCode.PULL_MESSAGE, RequestCode.GET_CONSUMER_LIST_BY_GROUP])
def test_what_has_no_counterpart_is_refused(world: World, code: int):
    world.ask(RemotingCommand(code, {"consumerGroup": GROUP}))
    assert world.answered().code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
