"""Scripts for the administration of topics."""

from __future__ import annotations

from functools import partial

from ...remoting.codec import SerializeType
from ...remoting.request_codes import RequestCode as Code
from .builders import Names, bad, create_topic, json_body, refused, topic_fields
from .normalise import counts, data_versions, only
from .request import BodyKind, Request, Script, Server

NOWHERE = {"topic": "wd-no-such-topic"}


def topics(header: SerializeType) -> Script:
    """Topics are created, changed, listed and deleted."""
    names = Names("topics", header)
    topic, fifo = names("plain"), names("fifo")
    one = partial(Request, code=Code.GET_TOPIC_CONFIG, body_kind=BodyKind.JSON)
    route = partial(
        Request,
        code=Code.GET_ROUTEINFO_BY_TOPIC,
        server=Server.NAMESRV,
        fields={"topic": topic},
        body_kind=BodyKind.JSON,
    )
    every = partial(
        Request,
        code=Code.GET_ALL_TOPIC_CONFIG,
        body_kind=BodyKind.JSON,
        normalisers=(
            only(names.prefix, "body.topicConfigTable"),
            data_versions("body.dataVersion", "body.mappingDataVersion"),
            counts("fields.totalTopicNum"),
        ),
    )
    page = {"topicSeq": 0, "dataVersion": "", "maxTopicNum": 2000}
    steps = (
        create_topic(topic, "a topic"),
        one(name="a topic", fields={"topic": topic}),
        one(name="a topic, logically", fields={"topic": topic, "lo": True}),
        # Apache answers before it registers the new topic with its name server.
        route(name="a topic that was made", until=lambda answer: answer.code == 0),
        create_topic(topic, "more queues", readQueueNums=5, writeQueueNums=4, perm=6, order=True),
        one(name="a topic with more queues", fields={"topic": topic}),
        route(name="a topic that was changed", until=lambda answer: b'"readQueueNums":5'
              in answer.body),
        create_topic(fifo, "with an attribute", attributes="+message.type=FIFO"),
        one(name="a topic with an attribute", fields={"topic": fifo}, since="5.0.0"),
        *_lists(names),
        every(name="at once"),
        every(name="a page", fields=page),
        every(name="a version that is no JSON", fields={**page, "dataVersion": "{"},
              erroneous=True, since="5.5.0"),
        every(name="a page beyond the end", fields={**page, "topicSeq": 99_999}, erroneous=True),
        Request("a topic", Code.DELETE_TOPIC_IN_BROKER, {"topic": topic}),
        bad("a topic that was deleted", Code.GET_TOPIC_CONFIG, {"topic": topic}, expect=17),
        *_refused(names),
    )  # fmt: skip
    return Script("topics", header, steps)


def _lists(names: Names) -> tuple[Request, ...]:
    code = Code.UPDATE_AND_CREATE_TOPIC_LIST
    config = {
        "attributes": {},
        "order": False,
        "perm": 6,
        "readQueueNums": 3,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "writeQueueNums": 3,
    }
    good = [{**config, "topicName": names("list1")}, {**config, "topicName": names("list2")}]
    mixed = [{**config, "topicName": names("list3")}, {**config, "topicName": "a b"}]
    first = {"topic": names("list1")}
    third = {"topic": names("list3")}
    return (
        Request("two topics", code, body=json_body({"topicConfigList": good}), since="5.3.0"),
        Request("one of a list", Code.GET_TOPIC_CONFIG, first, body_kind=BodyKind.JSON),
        bad("an illegal topic among them", code, body=json_body({"topicConfigList": mixed}),
            expect=29, since="5.3.0"),
        bad("one before an illegal topic", Code.GET_TOPIC_CONFIG, third, expect=17),
        refused("a body that is no JSON", code, body=b"{", since="5.3.0"),
        refused("no body", code, since="5.3.0"),
    )  # fmt: skip


def _refused(names: Names) -> tuple[Request, ...]:
    create, delete = Code.UPDATE_AND_CREATE_TOPIC, Code.DELETE_TOPIC_IN_BROKER
    fields = topic_fields(names("x"))
    no_perm = {name: value for name, value in fields.items() if name != "perm"}
    wrong = partial(bad, code=create)
    mixed = topic_fields(names("x"), attributes="+message.type=MIXED")
    unknown = topic_fields(names("x"), attributes="+nonsense=1")
    gone = topic_fields(names("x"), attributes="-message.type")
    return (
        wrong("an illegal name", fields=topic_fields("a b"), expect=29),
        wrong("a name too long", fields=topic_fields("t" * 128), expect=29),
        wrong("a blank name", fields=topic_fields(" "), expect=29),
        wrong("a topic of the broker", fields=topic_fields("TBW102"), expect=29),
        wrong("a mixed topic", fields=mixed, expect=29, since="5.0.0"),
        wrong("an attribute that nobody knows", fields=unknown, expect=1, since="5.0.0"),
        wrong("an attribute that is not there", fields=gone, expect=1, since="5.0.0"),
        wrong("an impossible permission", fields=topic_fields(names("y"), perm=99)),
        wrong("a negative count", fields=topic_fields(names("z"), readQueueNums=-1)),
        refused("a filter type that nobody knows", create,
                topic_fields(names("x"), topicFilterType="NONE")),
        refused("without a permission", create, no_perm),
        refused("a count that is no number", create, topic_fields(names("x"), readQueueNums="n")),
        bad("a topic that is not there", Code.GET_TOPIC_CONFIG, NOWHERE, expect=17),
        refused("without a topic", Code.GET_TOPIC_CONFIG),
        bad("a topic that is not there", delete, NOWHERE),
        bad("a topic of the broker", delete, {"topic": "TBW102"}, expect=29),
        bad("a blank name", delete, {"topic": " "}, expect=29),
        refused("without a topic", delete),
    )  # fmt: skip


SCRIPTS = (topics,)
"""Each creates a script for one kind of header."""
