"""Needs of single codes that differ from what the tables of rights show."""

from __future__ import annotations

import pytest

from trocket.auth.need_tables import NEEDS_OF_BROKER
from trocket.auth.needs import Places
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.request_codes import RequestCode as Code

PLACES = Places("DefaultCluster")


def needed(code: Code, places: Places = PLACES, **fields: str) -> list[str]:
    """What a request needs, as text: "Topic:T Pub"."""
    request = RemotingCommand(int(code), fields)
    return [
        f"{context.resource} {'/'.join(action.value for action in context.actions)}"
        for part in NEEDS_OF_BROKER[code]
        for context in part.contexts(request, places)
    ]


@pytest.mark.parametrize(
    ("code", "field"), [(Code.SEND_REPLY_MESSAGE, "topic"), (Code.SEND_REPLY_MESSAGE_V2, "b")]
)
def test_a_reply_needs_no_right_for_the_topic_of_replies(code, field):
    assert needed(code, **{field: "DefaultCluster_REPLY_TOPIC"}) == []
    assert needed(code, **{field: "other_REPLY_TOPIC"}) == ["Topic:other_REPLY_TOPIC Pub"]
    assert needed(code, **{field: "orders"}) == ["Topic:orders Pub"]


def test_the_end_of_a_checked_transaction_needs_the_right_for_the_topic_of_its_message():
    """Java's client of 5.x names the topic of half messages there."""
    places = Places("DefaultCluster", {70: "orders"}.get)
    fields = {"producerGroup": "p", "tranStateTableOffset": "0", "commitOrRollback": "8"}
    fields |= {"topic": "RMQ_SYS_TRANS_HALF_TOPIC", "commitLogOffset": "70"}
    assert needed(Code.END_TRANSACTION, places, **fields) == ["Topic:orders Pub"]
    fields["topic"] = "other"
    assert needed(Code.END_TRANSACTION, places, **fields) == ["Topic:other Pub", "Topic:orders Pub"]


@pytest.mark.parametrize(
    ("code", "fields", "first"),
    [
        (Code.GET_CONSUME_STATS, {"consumerGroup": "g", "topic": "t"}, "Group:g Get"),
        (Code.INVOKE_BROKER_TO_RESET_OFFSET, {"group": "g", "topic": "t"}, "Group:g Update"),
        (Code.QUERY_CORRECTION_OFFSET, {"compareGroup": "g", "topic": "t"}, "Group:g Get"),
        (Code.QUERY_SUBSCRIPTION_BY_CONSUMER, {"group": "g", "topic": "t"}, "Group:g Get"),
        (Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, {"group": "g", "topic": "t"}, "Topic:t Get"),
        (Code.PULL_MESSAGE, {"consumerGroup": "g", "topic": "t"}, "Topic:t Sub"),
    ],
)
def test_the_first_need_is_the_one_that_apache_names(code, fields, first):
    assert needed(code, **fields)[0] == first
