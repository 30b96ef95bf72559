"""Topics and queues that a query has read, and that go: nothing unread is skipped in silence."""

from __future__ import annotations

import itertools
import json

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is of the extra `spark`")

from trocket.blocking import Admin, Message, Producer
from trocket.spark.batch_plan import ranges
from trocket.spark.cluster import Cluster
from trocket.spark.errors import DataLossError, OptionError
from trocket.spark.pull_read import read_range
from trocket.spark.queue_offsets import QueueRange, StreamOffset
from trocket.spark.source import message_request
from trocket.spark.source_options import source_options
from trocket.spark.stream_plan import StreamPlan

pytestmark = pytest.mark.slow

NAMES = map("Kept{0} Gone{0}".format, itertools.count())


@pytest.fixture
def topics(broker):
    """Two topics with two messages each, in one queue: one that stays, and one to delete."""
    names = next(NAMES).split()
    with Producer(broker.url) as producer:
        for topic in names:
            broker.create_topic(topic, queues=1)
            for number in range(2):
                producer.send(Message(topic, f"{number}"))
    return names


WAYS = [
    lambda kept, gone: {"topicPattern": f"{kept}|{gone}"},
    lambda kept, gone: {"topics": f"{kept},{gone}"},
    lambda kept, gone: {
        "assign": json.dumps({kept: {"broker": [0]}, gone: {"broker": [0]}}).replace(
            "broker", "embedded"
        )
    },
]


def options_of(broker, **given):
    short = {"numRetries": "1", "retryIntervalMs": "1", "queueDiscoveryInterval": "0ms"}
    first = {"nameServer": broker.namesrv_address, "startingOffsets": "earliest"}
    return source_options({**first, **short, **given})


def plan_of(options):
    """A stream's plan as a process makes it anew, whose clock stands still."""
    return StreamPlan(options, lambda: Cluster(options), lambda: 0.0, lambda _: None)


def begun(broker, options):
    """The offset of a stream that has read one message of each topic."""
    plan = plan_of(options)
    return plan.next_end(plan.initial(), 2, all_of_it=False)


def read(options, start, end=None):
    """How many messages of each topic are between two offsets; of the next batch by default."""
    if end is None:
        end = plan_of(options).next_end(start, None, all_of_it=False)
    return end, {
        queue.topic: offset - start.offsets.get(queue, 0) for queue, offset in end.offsets.items()
    }


def broker_name(broker):
    with Admin(broker.url) as admin:
        return admin.cluster().brokers[0].name


def selected(broker, way, topics):
    given = WAYS[way](*topics)
    return {key: text.replace("embedded", broker_name(broker)) for key, text in given.items()}


@pytest.mark.parametrize("way", range(3), ids=["topicPattern", "topics", "assign"])
@pytest.mark.parametrize("is_pinned", [False, True], ids=["continuous", "availableNow"])
def test_a_deleted_topic_with_unread_messages_ends_a_stream(broker, topics, way, is_pinned) -> None:
    given = selected(broker, way, topics)
    options = options_of(broker, **given)
    start = begun(broker, options)
    broker.delete_topic(topics[1])
    plan = plan_of(options)
    if is_pinned:
        plan.pin()
    text = f"topic {topics[1]}, .* queue 0: .*deleted.*has read up to 1; set failOnDataLoss"
    with pytest.raises(DataLossError, match=text):
        plan.next_end(start, None, all_of_it=False)


@pytest.mark.parametrize("way", range(3), ids=["topicPattern", "topics", "assign"])
def test_without_fail_on_data_loss_the_other_topics_are_read_and_a_new_one_from_its_start(
    broker, topics, way, caplog
) -> None:
    given = selected(broker, way, topics)
    options = options_of(broker, failOnDataLoss="false", **given)
    start = begun(broker, options)
    broker.delete_topic(topics[1])
    end, counts = read(options, start)
    assert counts == {topics[0]: 1}
    assert caplog.text.count("data loss: ") == 1
    broker.create_topic(topics[1], queues=1)
    with Producer(broker.url) as producer:
        for number in range(3):
            producer.send(Message(topics[1], f"{number}"))
    _, counts = read(options_of(broker, **given), end)
    assert counts == {topics[0]: 0, topics[1]: 3}


def test_a_running_stream_notices_a_deletion_at_the_broker_first(broker, topics) -> None:
    options = options_of(broker, topics=",".join(topics), queueDiscoveryInterval="1h")
    plan = plan_of(options)
    start = plan.next_end(plan.initial(), 2, all_of_it=False)
    broker.delete_topic(topics[1])
    with pytest.raises(DataLossError, match=f"topic {topics[1]}"):
        plan.next_end(start, None, all_of_it=False)


@pytest.mark.parametrize("way", range(3), ids=["topicPattern", "topics", "assign"])
def test_a_deletion_is_noticed_without_the_wait_for_brokers_that_are_away(
    broker, topics, way
) -> None:
    """With these retries the wait is a day."""
    given = {"numRetries": "86400", "retryIntervalMs": "1000"}
    options = options_of(broker, **selected(broker, way, topics), **given)
    plan = plan_of(options)
    start = plan.next_end(plan.initial(), None, all_of_it=False)
    broker.delete_topic(topics[1])
    with pytest.raises(DataLossError, match=f"topic {topics[1]}"):
        plan_of(options).next_end(start, None, all_of_it=False)


def test_queues_that_may_not_be_read_any_more_end_a_stream_only_with_unread_messages(
    broker, topics
) -> None:
    options = options_of(broker, topicPattern="|".join(topics))
    start = begun(broker, options)
    _, gone = topics
    broker.create_topic(gone, queues=1, perm=2)
    with pytest.raises(DataLossError, match=f"topic {gone}, .*fewer queues.*no permission"):
        read(options, start)
    broker.create_topic(gone, queues=1, perm=6)
    end, _ = read(options, start)
    broker.create_topic(gone, queues=1, perm=2)
    assert plan_of(options).next_end(end, None, all_of_it=False) is None


def test_a_table_of_a_topic_without_permission_to_read_is_not_empty_but_an_error(broker) -> None:
    broker.create_topic("Closed", queues=1, perm=2)
    options = options_of(broker, topic="Closed")
    with pytest.raises(OptionError, match="topic Closed has no queue to read: its perm"):
        Cluster(options).queues(options)


@pytest.mark.parametrize("name", ["startingOffsets", "endingOffsets"])
def test_offsets_of_a_queue_that_is_not_there_are_not_ignored(broker, topics, name) -> None:
    kept, gone = topics
    broker.delete_topic(gone)
    own = broker_name(broker)
    given = {name: json.dumps({kept: {own: {"0": 1}}, gone: {own: {"0": 1}}})}
    options = options_of(broker, topicPattern="|".join(topics), **given)
    cluster = Cluster(options)
    with pytest.raises(DataLossError, match=f"{name} names topic {gone}, .*queue 0, which is not"):
        ranges(cluster, options, cluster.queues(options), {})
    lenient = options_of(broker, topicPattern="|".join(topics), failOnDataLoss="false", **given)
    (found,) = ranges(cluster, lenient, cluster.queues(lenient), {})
    assert (found.queue.topic, found.size) == (kept, 1)


def test_a_task_that_reads_a_deleted_topic_fails_or_returns_what_it_has(
    broker, topics, caplog
) -> None:
    for is_failing in (True, False):
        options = options_of(broker, topic=topics[1], failOnDataLoss=str(is_failing))
        cluster = Cluster(options)
        if is_failing:
            (queue,) = cluster.queues(options)
            broker.delete_topic(topics[1])
        reading = read_range(
            cluster, options, message_request(options, ("body",)), QueueRange(queue, 0, 2)
        )
        if is_failing:
            with pytest.raises(DataLossError, match="the topic was deleted"):
                list(reading)
        else:
            assert list(reading) == []
            assert "data loss: " in caplog.text


def test_a_topic_that_is_added_to_the_options_must_exist(broker, topics) -> None:
    start = begun(broker, options_of(broker, topics=",".join(topics)))
    options = options_of(broker, topics=f"{topics[0]},{topics[1]},Mistyped")
    with pytest.raises(OptionError, match="knows the topic Mistyped"):
        plan_of(options).next_end(start, None, all_of_it=False)
    # A topic that is not read any more may be gone.
    broker.delete_topic(topics[1])
    _, counts = read(options_of(broker, topics=topics[0]), StreamOffset(start.offsets))
    assert counts == {topics[0]: 1, topics[1]: 0}
