"""Lists of connected clients, requests forwarded to a client, and resets of offsets."""

from __future__ import annotations

import json

import pytest
import trio

from trocket.remoting import fastjson
from trocket.remoting.bodies import (
    ConsumerConnection,
    ConsumerData,
    GetConsumerStatusBody,
    GroupList,
    HeartbeatData,
    MessageQueue,
    ProducerConnection,
    ProducerData,
    SubscriptionData,
)
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.mq_version import V3_0_7_SNAPSHOT
from trocket.remoting.response_codes import NOT_SET
from trocket.remoting.signature import sign

from ...kit import (
    START_MS,
    broker_and_client,
    broker_client,
    embedded_broker,
    pull_fields,
    send_fields,
)

HEARTBEAT, SEND, RESET_CLIENT = 34, 310, 220
CONSUMERS, PRODUCERS, RESET, CONSUMED_BY, RUNNING_INFO, DIRECTLY = 203, 204, 222, 300, 307, 309
STATUS, CLIENT_STATUS = 223, 221


async def member(broker, client_id="c@1", sub_string="a || b"):
    """A client that produces and consumes."""
    client = await broker.connect()
    beat = HeartbeatData(
        client_id=client_id,
        producer_data_set=[ProducerData(group_name="PG")],
        consumer_data_set=[
            ConsumerData(
                group_name="CG",
                subscription_data_set=[
                    SubscriptionData(
                        topic="T", sub_string=sub_string, code_set={97, 98}, sub_version=7
                    )
                ],
            )
        ],
    )
    assert (await client.ask(HEARTBEAT, {}, beat.to_body())).code == 0
    return client


async def serve(client, seen, code=0, body=b""):
    """Answer what the broker hands on, until cancelled."""
    client.pushed.clear()  # it was notified that it is a member
    while True:
        command = await client.asked()
        seen.append(command)
        if not command.is_oneway:
            await client.reply(command.answer(code, "as asked", {"seen": "yes"}, body))


async def test_a_groups_clients_and_subscriptions_are_listed(autojump_clock):
    async with embedded_broker() as broker:
        await member(broker)
        await member(broker, "c@2")
        admin = await broker.connect()
        answer = await admin.ask(CONSUMERS, {"consumerGroup": "CG"})
        found = ConsumerConnection.from_body(answer.body)
        assert [each.client_id for each in found.connection_set] == ["c@1", "c@2"]
        assert {each.language for each in found.connection_set} == {"PYTHON"}
        assert ":" in found.connection_set[0].client_addr
        subscription = found.subscription_table["T"]
        assert (subscription.sub_string, subscription.sub_version) == ("a || b", 7)
        assert (subscription.tags_set, subscription.code_set) == ({"a", "b"}, {97, 98})
        answer = await admin.ask(PRODUCERS, {"producerGroup": "PG"})
        producers = ProducerConnection.from_body(answer.body).connection_set
        assert [each.client_id for each in producers] == ["c@1", "c@2"]


@pytest.mark.parametrize(
    ("code", "field", "refused", "remark"),
    [
        (CONSUMERS, "consumerGroup", 206, "the consumer group[G] not online"),
        (PRODUCERS, "producerGroup", 1, "the producer group[G] not exist"),
    ],
)
async def test_a_group_without_clients_is_refused(code, field, refused, remark, autojump_clock):
    async with broker_client() as admin:
        answer = await admin.ask(code, {field: "G"})
        assert (answer.code, answer.remark) == (refused, remark)


async def test_a_topic_is_consumed_by_who_subscribes_or_has_an_offset(autojump_clock):
    async with embedded_broker() as broker:
        await member(broker)
        admin = await broker.connect()
        await admin.ask(SEND, send_fields(), b"x")
        broker.controller.offsets.commit_offset("Old", "T", 0, 1)
        answer = await admin.ask(CONSUMED_BY, {"topic": "T"})
        assert GroupList.from_body(answer.body).group_list == ["CG", "Old"]
        answer = await admin.ask(CONSUMED_BY, {"topic": "U"})
        assert GroupList.from_body(answer.body).group_list == []


async def test_a_client_answers_what_is_handed_on_to_it(autojump_clock):
    seen: list[RemotingCommand] = []
    fields = {"consumerGroup": "CG", "clientId": "c@1", "jstackEnable": "true"}
    async with embedded_broker() as broker, trio.open_nursery() as nursery:
        nursery.start_soon(serve, await member(broker), seen, 0, b"{}")
        admin = await broker.connect()
        answer = await admin.ask(RUNNING_INFO, fields)
        assert (answer.code, answer.remark, answer.body) == (0, "as asked", b"{}")
        assert answer.ext_fields == {"seen": "yes"}
        sent = await admin.ask(SEND, send_fields(), b"now")
        message_id = sent.ext_fields["msgId"]
        answer = await admin.ask(DIRECTLY, fields | {"msgId": message_id})
        assert answer.code == 0
        nursery.cancel_scope.cancel()
    info, directly = seen
    assert (info.code, dict(info.ext_fields)) == (RUNNING_INFO, fields)
    assert (directly.code, directly.ext_fields["brokerName"]) == (DIRECTLY, "b")
    assert directly.ext_fields["groupSysFlag"] == "0"
    assert b"now" in directly.body


@pytest.mark.parametrize(
    ("code", "changed", "remark"),
    [
        (RUNNING_INFO, {"clientId": "c@9"}, "The Consumer <CG> <c@9> not online"),
        (RUNNING_INFO, {"consumerGroup": "G"}, "The Consumer <G> <c@1> not online"),
        (DIRECTLY, {"msgId": "7F00000100002A9F00000000000F4240"}, "there is no message at 1000000"),
        (DIRECTLY, {"msgId": "x"}, "not a message id: 'x'"),
    ],
)
async def test_what_cannot_be_handed_on_is_refused(code, changed, remark, autojump_clock):
    async with embedded_broker() as broker:
        await member(broker)
        admin = await broker.connect()
        answer = await admin.ask(code, {"consumerGroup": "CG", "clientId": "c@1"} | changed)
        assert answer.code == 1
        assert remark in answer.remark


async def test_a_client_does_not_get_the_signature_of_who_asks(autojump_clock):
    seen: list[RemotingCommand] = []
    fields = {"consumerGroup": "CG", "clientId": "c@1"}
    async with embedded_broker() as broker, trio.open_nursery() as nursery:
        nursery.start_soon(serve, await member(broker), seen, 0, b"{}")
        admin = await broker.connect()
        sent = await admin.ask(SEND, send_fields(), b"now")
        for code, more in ((RUNNING_INFO, {}), (DIRECTLY, {"msgId": sent.ext_fields["msgId"]})):
            signed = fields | more
            sign(signed, b"", "root", "secret-of-root", "token")
            assert (await admin.ask(code, signed)).code == 0
        nursery.cancel_scope.cancel()
    for each in seen:
        assert not {"AccessKey", "Signature", "SecurityToken"} & set(each.ext_fields)
    assert [each.code for each in seen] == [RUNNING_INFO, DIRECTLY]


OFFSETS = b'{"messageQueueTable":{{"topic":"T","brokerName":"b","queueId":1}:5}}'


def offsets_by_client(answer):
    """Client id -> (topic, broker name, queue id) -> offset."""
    assert (answer.code, answer.remark) == (0, NOT_SET)
    found = GetConsumerStatusBody.from_body(answer.body)
    assert found.message_queue_table == {}
    return found.consumer_table


async def test_the_clients_of_a_group_tell_their_offsets(autojump_clock):
    fields = {"topic": "T", "group": "CG"}
    at_5 = {MessageQueue("T", "b", 1): 5}
    seen: list[RemotingCommand] = []
    async with embedded_broker() as broker, trio.open_nursery() as nursery:
        for number in (1, 2):
            client = await member(broker, f"c@{number}")
            nursery.start_soon(serve, client, seen, 0, OFFSETS)
        admin = await broker.connect()
        both = await admin.ask(STATUS, fields)
        assert offsets_by_client(both) == {"c@1": at_5, "c@2": at_5}
        asked = [dict(each.ext_fields) for each in seen if each.code == CLIENT_STATUS]
        assert asked == [fields] * 2
        one = await admin.ask(STATUS, fields | {"clientAddr": "c@2"})
        assert offsets_by_client(one) == {"c@2": at_5}
        none = await admin.ask(STATUS, fields | {"clientAddr": "c@9"})
        assert offsets_by_client(none) == {}
        blank = await admin.ask(STATUS, fields | {"clientAddr": " "})
        assert len(offsets_by_client(blank)) == 2
        nursery.cancel_scope.cancel()


async def test_clients_that_do_not_tell_their_offsets_are_left_out(autojump_clock):
    async with embedded_broker() as broker, trio.open_nursery() as nursery:
        nursery.start_soon(serve, await member(broker, "c@good"), [], 0, OFFSETS)
        nursery.start_soon(serve, await member(broker, "c@refuses"), [], 3, OFFSETS)
        nursery.start_soon(serve, await member(broker, "c@garbage"), [], 0, b"{")
        nursery.start_soon(serve, await member(broker, "c@empty"), [], 0, b"")
        await member(broker, "c@silent")
        leaves = await member(broker, "c@leaves")
        admin = await broker.connect()
        began_s = trio.current_time()
        opaque = await admin.send(RemotingCommand(STATUS, {"topic": "T", "group": "CG"}))
        await trio.testing.wait_all_tasks_blocked()
        await leaves.stream.aclose()
        answer = await admin.answer(opaque)
        assert set(offsets_by_client(answer)) == {"c@good"}
        assert trio.current_time() - began_s == pytest.approx(5, abs=0.1)
        nursery.cancel_scope.cancel()


async def test_offsets_of_a_group_without_clients_or_with_an_old_one_are_refused(autojump_clock):
    fields = {"topic": "T", "group": "CG"}
    async with broker_and_client() as (broker, admin):
        answer = await admin.ask(STATUS, fields)
        remark = "No Any Consumer online in the consumer group: [CG]"
        assert (answer.code, answer.remark) == (1, remark)
        client = await member(broker)
        info = broker.controller.consumers.get_consumer_group_info("CG")
        assert info is not None
        (old,) = info.channel_info_table.values()
        old.version = V3_0_7_SNAPSHOT - 1
        answer = await admin.ask(STATUS, fields)
        assert answer.code == 1
        assert answer.remark.startswith("the client does not support this feature. version=")
        assert CLIENT_STATUS not in [each.code for each in client.pushed]
        answer = await admin.ask(STATUS, {"group": "CG"})
        assert answer.code == 1
        assert "topic" in answer.remark


async def test_a_client_that_does_not_answer_or_disconnects_is_reported(autojump_clock):
    fields = {"consumerGroup": "CG", "clientId": "c@1"}
    async with embedded_broker() as broker:
        client = await member(broker)
        admin = await broker.connect()
        start_s = trio.current_time()
        answer = await admin.ask(RUNNING_INFO, fields)
        assert (answer.code, "Timeout" in answer.remark) == (207, True)
        assert trio.current_time() - start_s == pytest.approx(10, abs=0.1)
        opaque = await admin.send(RemotingCommand(RUNNING_INFO, fields))
        await trio.testing.wait_all_tasks_blocked()
        await client.stream.aclose()
        answer = await admin.answer(opaque)
        assert (answer.code, "Exception" in answer.remark) == (1, True)


@pytest.mark.parametrize(
    ("timestamp", "force", "offset"),
    [
        (START_MS + 2_000, "true", 2),
        (START_MS + 2_000, "false", 2),
        (START_MS + 4_000, "true", 4),
        (START_MS + 4_000, "false", 3),
        (-1, "true", 5),
        (-1, "false", 3),
        (0, "true", 0),
    ],
)
async def test_a_groups_clients_get_their_new_offsets(timestamp, force, offset, autojump_clock):
    seen: list[RemotingCommand] = []
    async with (
        embedded_broker(default_topic_queue_nums=1, use_server_side_reset_offset=False) as broker,
        trio.open_nursery() as nursery,
    ):
        admin = await broker.connect()
        for number in range(5):  # one each second
            await trio.sleep_until(number)
            assert (await admin.ask(SEND, send_fields(), b"%d" % number)).code == 0
        broker.controller.offsets.commit_offset("CG", "T", 0, 3)
        nursery.start_soon(serve, await member(broker), seen)
        fields = {"group": "CG", "topic": "T", "timestamp": timestamp, "isForce": force}
        answer = await admin.ask(RESET, fields)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert answer.code == 0
    assert fastjson.loads(answer.body) == fastjson.loads(
        b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:%d}}' % offset
    )
    (command,) = [each for each in seen if each.code == RESET_CLIENT]
    assert command.is_oneway
    assert command.body == answer.body
    assert (command.ext_fields["group"], command.ext_fields["topic"]) == ("CG", "T")
    assert command.ext_fields["queueId"] == "-1"  # all of them
    assert answer.remark == "not set any response code"  # as Apache's


@pytest.mark.parametrize(
    ("changed", "code", "remark"),
    [
        ({"topic": "U"}, 17, "no topic in this broker. topic=U"),
        ({"group": "G"}, 1, "THe consumer group <G> not exist"),
        ({}, 206, "Consumer not online, so can not reset offset, Group: CG Topic: T"),
    ],
)
async def test_offsets_that_cannot_be_reset_are_refused(changed, code, remark, autojump_clock):
    async with broker_and_client(
        default_topic_queue_nums=1, use_server_side_reset_offset=False
    ) as (broker, admin):
        await admin.ask(SEND, send_fields(), b"x")
        broker.controller.offsets.commit_offset("CG", "T", 0, 1)
        fields = {"group": "CG", "topic": "T", "timestamp": 0, "isForce": "true"} | changed
        answer = await admin.ask(RESET, fields)
        assert answer.code == code
        assert remark in answer.remark


async def reset(admin, **fields):
    """The answer to a reset of group CG in topic T on the broker."""
    who = {"group": "CG", "topic": "T", "timestamp": -1, "isForce": "true"}
    return await admin.ask(RESET, who | fields)


async def five_messages(broker):
    """An administrator; topic T has five messages, one each second, and CG consumed three."""
    admin = await broker.connect()
    for number in range(5):
        await trio.sleep_until(number)
        assert (await admin.ask(SEND, send_fields(), b"%d" % number)).code == 0
    assert (await admin.ask(200, {}, b'{"groupName":"CG"}')).code == 0
    place = {"consumerGroup": "CG", "topic": "T", "queueId": 0}
    assert (await admin.ask(15, {**place, "commitOffset": 3})).code == 0
    return admin, place


@pytest.mark.parametrize(
    ("fields", "offset"),
    [
        ({"timestamp": START_MS + 2_000}, 2),
        ({}, 5),
        ({"queueId": 0, "offset": 1}, 1),
        ({"queueId": 0, "offset": -1, "timestamp": 0}, 0),
    ],
)
async def test_the_broker_resets_the_offsets_of_a_group(fields, offset, autojump_clock):
    async with embedded_broker(default_topic_queue_nums=1) as broker:
        admin, place = await five_messages(broker)
        answer = await reset(admin, **fields)
        assert answer.code == 0
        assert fastjson.loads(answer.body) == fastjson.loads(
            b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:%d}}' % offset
        )
        # What a member commits before it knows is ignored.
        answer = await admin.ask(15, {**place, "commitOffset": 4})
        assert (answer.code, answer.remark) == (0, "Offset has been previously reset")
        assert (await admin.ask(14, place)).ext_fields["offset"] == str(offset)
        # A pull is sent to the new offset, once, whatever it commits.
        pull = pull_fields(queueOffset=4, sysFlag=1 | 4, commitOffset=4)
        answer = await admin.ask(11, pull)
        assert (answer.code, answer.remark) == (21, "OFFSET_RESET")
        assert answer.ext_fields["nextBeginOffset"] == str(offset)
        assert (await admin.ask(14, place)).ext_fields["offset"] == str(offset)
        assert (await admin.ask(11, pull)).code == 0
        assert (await admin.ask(15, {**place, "commitOffset": 4})).remark is None


async def test_a_held_pull_is_sent_to_the_new_offset_at_once(autojump_clock):
    async with embedded_broker(default_topic_queue_nums=1) as broker, trio.open_nursery() as tasks:
        admin, _ = await five_messages(broker)
        consumer = await broker.connect()
        answers: list[RemotingCommand] = []

        async def pull():
            answers.append(await consumer.ask(11, pull_fields(queueOffset=5)))

        tasks.start_soon(pull)
        await trio.testing.wait_all_tasks_blocked()
        assert answers == []
        before_s = trio.current_time()
        assert (await reset(admin, queueId=0, offset=2)).code == 0
        await trio.testing.wait_all_tasks_blocked()
        assert trio.current_time() == before_s
        (answer,) = answers
        assert (answer.code, answer.ext_fields["nextBeginOffset"]) == (21, "2")


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"topic": "U"}, 17, "Topic U does not exist"),
        ({"group": "G"}, 26, "Group G does not exist"),
        ({"queueId": 0, "offset": 7}, 1, "Target offset 7 not in consume queue range [0-5]"),
        ({"queueId": 0, "offset": -2}, 1, "Target offset -2 not in consume queue range [0-5]"),
        ({"queueId": 7, "offset": 2}, 1, "Target offset 2 not in consume queue range [0-0]"),
    ],
)
async def test_wrong_resets_change_nothing(fields, code, remark, autojump_clock):
    async with embedded_broker(
        default_topic_queue_nums=1, auto_create_subscription_group=False
    ) as broker:
        admin, place = await five_messages(broker)
        answer = await reset(admin, **fields)
        assert answer.code == code
        assert remark in answer.remark
        assert (await admin.ask(14, place)).ext_fields["offset"] == "3"


async def test_a_reset_to_one_past_the_end_is_one_to_the_end(autojump_clock):
    """Apache's broker takes it, too; stored as it is, it would hide the next message."""
    async with embedded_broker(default_topic_queue_nums=1) as broker:
        admin, place = await five_messages(broker)
        answer = await reset(admin, queueId=0, offset=6)
        assert (answer.code, answer.body.endswith(b"}:5}}")) == (0, True)
        assert (await admin.ask(14, place)).ext_fields["offset"] == "5"


@pytest.mark.parametrize("place", [{"offset": 0}, {"offset": 1}, {}])
async def test_a_reset_of_a_queue_that_the_topic_does_not_have_succeeds_and_stores_nothing(
    place, autojump_clock, caplog
):
    """As mqadmin's resetOffsetByTime with a wrong -q shows it with Apache's broker."""
    async with embedded_broker(default_topic_queue_nums=1) as broker:
        admin, known = await five_messages(broker)
        answer = await reset(admin, queueId=7, **place)
        assert (answer.code, answer.body.endswith(b"}:0}}")) == (0, True)
        assert (await admin.ask(14, known | {"queueId": 7})).code == 22
        assert (await admin.ask(14, known)).ext_fields["offset"] == "3"
        assert "topic T has no queue 7: nothing is reset" in caplog.text


async def test_a_deleted_topic_takes_its_resets_with_it(autojump_clock):
    async with embedded_broker(default_topic_queue_nums=1) as broker:
        admin, _ = await five_messages(broker)
        assert (await reset(admin)).code == 0
        assert (await admin.ask(215, {"topic": "T"})).code == 0
        assert broker.controller.offsets.reset_offset_table == {}


def test_the_answers_are_what_javas_fastjson_reads():
    body = ConsumerConnection().to_body()
    assert json.loads(body) == {"connectionSet": [], "subscriptionTable": {}}
