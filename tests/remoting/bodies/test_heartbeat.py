"""Heartbeats of clients in several languages."""

from __future__ import annotations

import pytest

from trocket.remoting.bodies import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    ProducerData,
    SubscriptionData,
)
from trocket.remoting.errors import RemoteProtocolError

SUBSCRIPTION = SubscriptionData("t", "TagA || TagB", {"TagA", "TagB"}, {2598919, 2598920}, 5)


def test_a_java_heartbeat_is_read_into_its_parts() -> None:
    heartbeat = HeartbeatData.from_body(
        b'{"clientID":"c@1","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET",'
        b'"consumeType":"CONSUME_ACTIVELY","groupName":"g","messageModel":"BROADCASTING",'
        b'"subscriptionDataSet":[{"classFilterMode":false,"codeSet":[2598919,2598920],'
        b'"expressionType":"TAG","subString":"TagA || TagB","subVersion":5,'
        b'"tagsSet":["TagB","TagA"],"topic":"t"}],"unitMode":true}],"heartbeatFingerprint":-7,'
        b'"producerDataSet":[{"groupName":"p"}],"withoutSub":true}'
    )
    assert heartbeat == HeartbeatData(
        "c@1",
        [ProducerData("p")],
        [
            ConsumerData(
                "g",
                ConsumeType.CONSUME_ACTIVELY,
                MessageModel.BROADCASTING,
                ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
                [SUBSCRIPTION],
                unit_mode=True,
            )
        ],
        heartbeat_fingerprint=-7,
        is_without_sub=True,
    )
    assert HeartbeatData.from_body(heartbeat.to_body()) == heartbeat


def test_the_members_spelt_unlike_their_fields_are_written_so() -> None:
    body = HeartbeatData("c", is_without_sub=True).to_body()
    assert body.startswith(b'{"clientID":"c",')
    assert body.endswith(b'"heartbeatFingerprint":0,"withoutSub":true}')


def test_numbers_of_enums_are_read_as_the_c_plus_plus_client_sends_them() -> None:
    heartbeat = HeartbeatData.from_body(
        b'{"clientID":"c","consumerDataSet":[{"groupName":"g","consumeType":0,"messageModel":0,'
        b'"consumeFromWhere":4}]}'
    )
    consumer = heartbeat.consumer_data_set[0]
    assert consumer.consume_type is ConsumeType.CONSUME_ACTIVELY
    assert consumer.message_model is MessageModel.BROADCASTING
    assert consumer.consume_from_where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


def test_empty_sets_that_come_as_null_are_empty() -> None:
    heartbeat = HeartbeatData.from_body(
        b'{"clientID":"c","producerDataSet":null,"consumerDataSet":[{"groupName":"g",'
        b'"subscriptionDataSet":[{"topic":"t","subString":"*","tagsSet":null,"codeSet":null}]}]}'
    )
    assert heartbeat.producer_data_set == []
    subscription = heartbeat.consumer_data_set[0].subscription_data_set[0]
    assert (subscription.tags_set, subscription.code_set) == (set(), set())


def test_hash_codes_may_come_as_texts_and_negative() -> None:
    subscription = SubscriptionData.from_body(b'{"codeSet":["2598919",-5]}')
    assert subscription.code_set == {2598919, -5}


@pytest.mark.parametrize(
    "body",
    [
        b'{"consumerDataSet":[{"consumeType":"NO_SUCH_TYPE"}]}',
        b'{"consumerDataSet":[{"consumeType":9}]}',
        b'{"consumerDataSet":[{"messageModel":-1}]}',
        b'{"consumerDataSet":[5]}',
        b'{"consumerDataSet":5}',
        b'{"consumerDataSet":[{"subscriptionDataSet":[{"codeSet":[2147483648]}]}]}',
        b"[]",
        b"5",
    ],
)
def test_a_heartbeat_that_does_not_fit_is_refused(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="not a HeartbeatData"):
        HeartbeatData.from_body(body)
