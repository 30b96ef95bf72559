"""Topics by an administrator's hand."""

from __future__ import annotations

import json

import pytest

from trocket.broker.admin.topic_admin import PAGE_SIZE_MAX
from trocket.broker.settings.config import BrokerConfig
from trocket.remoting.bodies import CreateTopicListRequestBody, DataVersion, TopicConfig
from trocket.remoting.number_fields import QUEUE_COUNT_MAX
from trocket.remoting.request_codes import RequestCode
from trocket.remoting.response_codes import NOT_SET, ResponseCode

from ..harness import BrokerTables


def topic_list(*topics):
    return CreateTopicListRequestBody(topic_config_list=list(topics)).to_body()


def test_a_created_topic_is_registered_before_the_answer():
    broker = BrokerTables()
    answer = broker.create_topic("T", 3, attributes="+message.type=FIFO", order="true")
    assert (answer.code, answer.remark, answer.ext_fields) == (0, NOT_SET, {})
    topic = broker.topics.select("T")
    assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (3, 3, 6)
    assert (topic.order, topic.attributes) == (True, {"message.type": "FIFO"})
    assert broker.registrations == [1]


def test_a_topic_that_is_created_again_stays_as_it_is_and_is_registered_again():
    broker = BrokerTables()
    broker.create_topic("T", attributes="+message.type=FIFO")
    version = broker.topics.data_version
    assert broker.create_topic("T").code == 0
    assert broker.topics.select("T").attributes == {"message.type": "FIFO"}
    assert broker.topics.data_version is version
    assert broker.registrations == [1, 1]


@pytest.mark.parametrize(
    ("topic", "more", "code", "remark"),
    [
        ("", {}, 29, "The specified topic is blank."),
        (
            "../x",
            {},
            29,
            (
                "The specified topic: ../x, contains illegal characters, "
                "allowing only ^[%|a-zA-Z0-9_-]+$"
            ),
        ),
        ("TBW102", {}, 29, "The topic[TBW102] is conflict with system topic."),
        ("broker-a", {}, 29, "The topic[broker-a] is conflict with system topic."),
        ("rmq_sys_x", {}, 29, "The topic[rmq_sys_x] is conflict with system topic."),
        (
            "T",
            {"attributes": "+message.type=MIXED"},
            29,
            "MIXED message type is not supported.",
        ),
        ("T", {"attributes": "x=1"}, 1, "add/alter attribute format is wrong: x"),
        ("T", {"attributes": "+x=1"}, 1, "unsupported key: x"),
        ("T", {"topicFilterType": "ODD"}, 1, "topicFilterType = [ODD] value invalid"),
    ],
)
def test_what_is_not_allowed_is_refused_and_nothing_happens(topic, more, code, remark):
    broker = BrokerTables()
    before = broker.topics.encode()
    answer = broker.create_topic(topic, **more)
    assert (answer.code, answer.remark) == (code, remark)
    assert (broker.topics.encode(), broker.registrations) == (before, [])


@pytest.mark.parametrize(
    ("asked", "counts_and_perm"),
    [
        ({"perm": "8"}, (4, 4, 0)),
        ({"perm": "15"}, (4, 4, 7)),
        ({"readQueueNums": str(QUEUE_COUNT_MAX + 1)}, (QUEUE_COUNT_MAX, 4, 6)),
        ({"readQueueNums": "0", "writeQueueNums": "0"}, (1, 0, 6)),
        ({"readQueueNums": "-1", "writeQueueNums": "-1"}, (1, 0, 6)),
    ],
)
def test_mqadmins_impossible_numbers_are_taken_as_the_nearest_possible_ones(asked, counts_and_perm):
    broker = BrokerTables()
    fields = {"readQueueNums": "4", "writeQueueNums": "4", "perm": "6"} | asked
    assert broker.create_topic("T", **fields).code == 0
    topic = broker.topics.select("T")
    assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == counts_and_perm


@pytest.mark.parametrize("missing", ["topic", "readQueueNums", "perm", "topicFilterType", "order"])
def test_a_missing_field_is_named(missing):
    fields = {
        "topic": "T",
        "defaultTopic": "TBW102",
        "readQueueNums": "1",
        "writeQueueNums": "1",
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "order": "false",
    }
    del fields[missing]
    answer = BrokerTables().ask(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
    assert (answer.code, answer.remark) == (1, f"the custom field <{missing}> is null")


def test_a_list_creates_all_topics_with_one_registration():
    broker = BrokerTables()
    body = topic_list(TopicConfig(topic_name="A"), TopicConfig(topic_name="B", perm=4))
    answer = broker.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=body)
    assert (answer.code, answer.remark) == (0, NOT_SET)
    assert broker.topics.select("A").perm == 6
    assert broker.topics.select("B").perm == 4
    assert (broker.saves, broker.registrations) == (1, [1])


def test_a_list_with_one_bad_topic_creates_none():
    broker = BrokerTables()
    body = topic_list(TopicConfig(topic_name="A"), TopicConfig(topic_name="B C"))
    answer = broker.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=body)
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert broker.topics.select("A") is None


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"topicConfigList":3}', b"\xff\xfe"])
def test_a_list_that_is_none_is_refused(body):
    answer = BrokerTables().ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=body)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark.startswith("the body of request 18 cannot be read: ")


@pytest.mark.parametrize("is_on", [True, False])
def test_the_retry_topics_of_pop_consumers_go_with_their_topic(is_on):
    config = BrokerConfig(clear_retry_topic_when_delete_topic=is_on)
    broker = BrokerTables(config)
    retries = ["%RETRY%g+T", "%RETRY%g_T"]
    others = ["%RETRY%h+T", "%RETRY%g+U", "%RETRY%g"]
    names = ("T", "U", *retries, *others)
    broker.topics.update([TopicConfig(topic_name=name) for name in names])
    broker.topics.file.persist()
    broker.offsets.commit_offset("g", "T", 0, 5)
    broker.offsets.commit_offset("g", "%RETRY%g+T", 0, 5)
    assert broker.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"}).code == 0
    gone = ["T", *retries] if is_on else ["T"]
    kept = [*others, "U"] if is_on else [*retries, *others, "U"]
    assert broker.store.deleted == gone
    assert [name for name in gone if broker.topics.select(name)] == []
    assert [name for name in kept if not broker.topics.select(name)] == []
    assert broker.offsets.query_offset("g", "%RETRY%g+T", 0) == (-1 if is_on else 5)


def test_a_deleted_topic_is_gone_with_its_offsets_and_queues():
    broker = BrokerTables()
    broker.create_topic("T")
    broker.offsets.commit_offset("g", "T", 0, 5)
    answer = broker.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
    assert (answer.code, answer.remark) == (0, None)
    assert broker.topics.select("T") is None
    assert broker.offsets.query_offset("g", "T", 0) == -1
    assert broker.store.deleted == ["T"]
    assert broker.registrations == [1, 2]


def test_deleting_a_topic_that_is_not_there_succeeds():
    broker = BrokerTables()
    assert broker.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "%RETRY%g"}).code == 0


def test_a_name_that_no_topic_may_have_never_reaches_the_store():
    broker = BrokerTables()
    broker.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "../x"})
    assert broker.store.deleted == []


@pytest.mark.parametrize(
    ("topic", "remark"),
    [
        (" ", "The specified topic is blank."),
        (
            "SCHEDULE_TOPIC_XXXX",
            "The topic[SCHEDULE_TOPIC_XXXX] is conflict with system topic.",
        ),
    ],
)
def test_what_is_not_an_administrators_is_not_deleted(topic, remark):
    broker = BrokerTables()
    answer = broker.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})
    assert (answer.code, answer.remark) == (29, remark)
    assert broker.store.deleted == []
    assert "SCHEDULE_TOPIC_XXXX" in broker.topics.topic_config_table


def test_one_topic_is_returned_and_an_unknown_one_is_refused():
    broker = BrokerTables()
    broker.create_topic("T", 2)
    answer = broker.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "T", "lo": "true"})
    assert (answer.code, answer.remark) == (0, None)
    assert TopicConfig.from_body(answer.body) == broker.topics.select("T")
    answer = broker.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "U"})
    assert (answer.code, answer.remark) == (17, "No topic in this broker. topic: U")


def test_all_topics_are_returned_unless_pages_are_requested():
    broker = BrokerTables()
    answer = broker.ask(RequestCode.GET_ALL_TOPIC_CONFIG)
    body = json.loads(answer.body)
    assert body["topicConfigTable"].keys() == broker.topics.topic_config_table.keys()
    assert answer.ext_fields == {"totalTopicNum": str(len(body["topicConfigTable"]))}


def test_pages_begin_at_the_start_when_the_table_has_changed_since():
    broker = BrokerTables()
    broker.create_topic("T")
    names = sorted(broker.topics.topic_config_table)

    def page(data_version, begin, count="2"):
        fields = {"topicSeq": str(begin), "maxTopicNum": count, "dataVersion": data_version}
        answer = broker.ask(RequestCode.GET_ALL_TOPIC_CONFIG, fields)
        assert answer.ext_fields == {"totalTopicNum": str(len(names))}
        return sorted(json.loads(answer.body)["topicConfigTable"])

    version = broker.topics.data_version.to_body().decode()
    assert page("", 0) == names[:2]
    assert page(version, 2) == names[2:4]
    assert page(DataVersion(counter=99).to_body().decode(), 2) == names[:2]
    assert page(version, len(names)) == []
    assert page(version, -5, str(PAGE_SIZE_MAX + 1)) == names
    assert page(version, 0, "-1") == []


@pytest.mark.parametrize("version", ["{", "[]", "7", '{"counter":"x"}'])
def test_a_page_after_a_version_that_cannot_be_read_is_the_first_one(version):
    broker = BrokerTables()
    fields = {"topicSeq": "2", "maxTopicNum": "3", "dataVersion": version}
    answer = broker.ask(RequestCode.GET_ALL_TOPIC_CONFIG, fields)
    assert answer.code == 0
    names = sorted(broker.topics.topic_config_table)
    assert sorted(json.loads(answer.body)["topicConfigTable"]) == names[:3]
