"""The rights that each request code needs, by hand: the other side of the matrix test.

A row has the request's fields and body, and its rights: all are needed, and of alternatives
(`Topic:T Sub|Get`) each is enough. A code that a server serves must have a row.
"""

from __future__ import annotations

from typing import NamedTuple

from trocket.remoting.request_codes import RequestCode as Code


class Row(NamedTuple):
    """A request, and what it needs."""

    fields: dict[str, object]
    rights: tuple[str, ...]
    body: bytes = b""


def row(*rights: str, body: bytes = b"", **fields: object) -> Row:
    return Row(fields, rights, body)


GET = "Cluster:DefaultCluster Get"
UPDATE = "Cluster:DefaultCluster Update"
TOPICS = "Topic:* List|Get"

HEARTBEAT = (
    b'{"clientID":"c","producerDataSet":[{"groupName":"PG"}],"consumerDataSet":[{"groupName":"G",'
    b'"subscriptionDataSet":[{"topic":"T","subString":"*"},{"topic":"%RETRY%G","subString":"*"}]}]}'
)
ACKS = b'{"brokerName":"b","acks":[{"c":"G","t":"T","r":"0","b":"AQ=="}]}'
LOCK = (
    b'{"consumerGroup":"G","clientId":"c","mqSet":[{"topic":"T","brokerName":"b","queueId":0},'
    b'{"topic":"%RETRY%G","brokerName":"b","queueId":0}]}'
)

BROKER: dict[int, Row] = {
    Code.SEND_MESSAGE: row("Topic:T Pub", topic="T", producerGroup="PG"),
    Code.SEND_MESSAGE_V2: row("Topic:T Pub", a="PG", b="T"),
    Code.SEND_BATCH_MESSAGE: row("Topic:T Pub", a="PG", b="T"),
    Code.SEND_REPLY_MESSAGE: row("Topic:T Pub", topic="T", producerGroup="PG"),
    Code.SEND_REPLY_MESSAGE_V2: row("Topic:T Pub", a="PG", b="T"),
    Code.RECALL_MESSAGE: row("Topic:T Pub", topic="T"),
    Code.END_TRANSACTION: row(
        "Topic:T Pub", "Topic:STORED Pub", topic="T", producerGroup="PG",
        tranStateTableOffset=0, commitLogOffset=0, commitOrRollback=8,
    ),
    Code.PULL_MESSAGE: row("Topic:T Sub", "Group:G Sub", topic="T", consumerGroup="G"),
    Code.LITE_PULL_MESSAGE: row("Topic:T Sub", "Group:G Sub", topic="T", consumerGroup="G"),
    Code.POP_MESSAGE: row("Topic:T Sub", "Group:G Sub", topic="T", consumerGroup="G"),
    Code.ACK_MESSAGE: row("Topic:T Sub", "Group:G Sub", topic="T", consumerGroup="G"),
    Code.BATCH_ACK_MESSAGE: row("Topic:T Sub", "Group:G Sub", body=ACKS),
    Code.CHANGE_MESSAGE_INVISIBLETIME: row(
        "Topic:T Sub", "Group:G Sub", topic="T", consumerGroup="G"
    ),
    Code.PEEK_MESSAGE: row("Topic:T Sub", "Group:G Sub", topic="T", consumerGroup="G"),
    Code.NOTIFICATION: row("Topic:T Sub", "Group:G Sub", topic="T", consumerGroup="G"),
    Code.POLLING_INFO: row("Topic:T Get", "Group:G Get", topic="T", consumerGroup="G"),
    Code.CONSUMER_SEND_MSG_BACK: row(
        "Group:G Sub", "Topic:STORED Sub", group="G", offset=0, delayLevel=0
    ),
    Code.QUERY_MESSAGE: row("Topic:T Sub|Get", topic="T", key="k"),
    Code.VIEW_MESSAGE_BY_ID: row("Topic:STORED Get", offset=0),
    Code.RESUME_CHECK_HALF_MESSAGE: row(
        "Topic:STORED Update", msgId="7F00000100002A9F0000000000000000"
    ),
    Code.HEART_BEAT: row("Group:G Sub", "Topic:T Sub", body=HEARTBEAT),
    Code.UNREGISTER_CLIENT: row("Group:G Sub", clientID="c", consumerGroup="G"),
    Code.CHECK_CLIENT_CONFIG: row(
        "Group:G Sub", "Topic:T Sub",
        body=b'{"clientId":"c","group":"G","subscriptionData":{"topic":"T","subString":"*"}}',
    ),
    Code.GET_CONSUMER_LIST_BY_GROUP: row("Group:G Sub|Get", consumerGroup="G"),
    Code.QUERY_CONSUMER_OFFSET: row(
        "Topic:T Sub|Get", "Group:G Sub|Get", topic="T", consumerGroup="G", queueId=0
    ),
    Code.UPDATE_CONSUMER_OFFSET: row(
        "Topic:T Sub|Update", "Group:G Sub|Update", topic="T", consumerGroup="G", queueId=0,
        commitOffset=0,
    ),
    Code.LOCK_BATCH_MQ: row("Group:G Sub", "Topic:T Sub", body=LOCK),
    Code.UNLOCK_BATCH_MQ: row("Group:G Sub", "Topic:T Sub", body=LOCK),
    Code.QUERY_ASSIGNMENT: row(
        "Group:G Sub", "Topic:T Sub", body=b'{"topic":"T","consumerGroup":"G","clientId":"c"}'
    ),
    Code.SET_MESSAGE_REQUEST_MODE: row(
        "Group:G Update", "Topic:T Update", body=b'{"topic":"T","consumerGroup":"G","mode":"POP"}'
    ),
    Code.SEARCH_OFFSET_BY_TIMESTAMP: row("Topic:T Get", topic="T", queueId=0, timestamp=0),
    Code.GET_MAX_OFFSET: row("Topic:T Get", topic="T", queueId=0),
    Code.GET_MIN_OFFSET: row("Topic:T Get", topic="T", queueId=0),
    Code.GET_EARLIEST_MSG_STORETIME: row("Topic:T Get", topic="T", queueId=0),
    Code.GET_ALL_MESSAGE_REQUEST_MODE: row(GET),
    Code.UPDATE_AND_CREATE_TOPIC: row("Topic:T Create", topic="T"),
    Code.UPDATE_AND_CREATE_TOPIC_LIST: row(
        "Topic:T Create", "Topic:T2 Create",
        body=b'{"topicConfigList":[{"topicName":"T"},{"topicName":"T2"}]}',
    ),
    Code.UPDATE_AND_CREATE_STATIC_TOPIC: row(
        "Topic:T Create", topic="T", body=b'{"topic":"T","bname":"b","totalQueues":1}'
    ),
    Code.DELETE_TOPIC_IN_BROKER: row("Topic:T Delete", topic="T"),
    Code.GET_ALL_TOPIC_CONFIG: row(TOPICS),
    Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: row(TOPICS),
    Code.GET_TOPIC_CONFIG: row("Topic:T Get", topic="T"),
    Code.GET_TOPIC_STATS_INFO: row("Topic:T Get", topic="T"),
    Code.QUERY_TOPIC_CONSUME_BY_WHO: row("Topic:T Get", topic="T"),
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: row("Group:G Create", body=b'{"groupName":"G"}'),
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: row(
        "Group:G Create", "Group:G2 Create",
        body=b'{"groupConfigList":[{"groupName":"G"},{"groupName":"G2"}]}',
    ),
    Code.DELETE_SUBSCRIPTIONGROUP: row("Group:G Delete", groupName="G"),
    Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: row("Group:* List|Get"),
    Code.GET_SUBSCRIPTIONGROUP_CONFIG: row("Group:G Get", group="G"),
    Code.GET_CONSUMER_CONNECTION_LIST: row("Group:G Get", consumerGroup="G"),
    Code.GET_CONSUMER_RUNNING_INFO: row("Group:G Get", consumerGroup="G", clientId="c"),
    Code.QUERY_TOPICS_BY_CONSUMER: row("Group:G Get", group="G"),
    Code.QUERY_SUBSCRIPTION_BY_CONSUMER: row("Group:G Get", "Topic:T Get", group="G", topic="T"),
    Code.QUERY_CONSUME_TIME_SPAN: row("Group:G Get", "Topic:T Get", group="G", topic="T"),
    Code.GET_CONSUME_STATS: row(
        "Group:G Get", "Topic:T Get", "Topic:T2 Get", consumerGroup="G", topic="T", topicList="T2;"
    ),
    Code.QUERY_CORRECTION_OFFSET: row(
        "Topic:T Get", "Group:G Get", "Group:G2 Get", "Group:G3 Get", topic="T", compareGroup="G",
        filterGroups="G2,G3",
    ),
    Code.QUERY_CONSUME_QUEUE: row(
        "Topic:T Get", "Group:G Get", topic="T", consumerGroup="G", queueId=0, index=0, count=1
    ),
    Code.INVOKE_BROKER_TO_RESET_OFFSET: row(
        "Topic:T Update", "Group:G Update", topic="T", group="G", timestamp=0
    ),
    Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: row(
        "Topic:T Get", "Group:G Get", topic="T", group="G"
    ),
    Code.CLONE_GROUP_OFFSET: row(
        "Group:G Get", "Group:G2 Update", "Topic:T Update", srcGroup="G", destGroup="G2", topic="T"
    ),
    Code.CONSUME_MESSAGE_DIRECTLY: row(
        "Group:G Sub", "Topic:T Sub", "Topic:STORED Sub", consumerGroup="G", clientId="c",
        topic="T", msgId="7F00000100002A9F0000000000000000",
    ),
    Code.UPDATE_AND_GET_GROUP_FORBIDDEN: row(
        "Group:G Update", "Topic:T Update", group="G", topic="T"
    ),
    Code.UPDATE_BROKER_CONFIG: row(UPDATE),
    Code.GET_BROKER_CONFIG: row(GET),
    Code.GET_BROKER_RUNTIME_INFO: row(GET),
    Code.GET_PRODUCER_CONNECTION_LIST: row(GET, producerGroup="PG"),
    Code.GET_ALL_PRODUCER_INFO: row(GET),
    Code.CLEAN_EXPIRED_CONSUMEQUEUE: row(UPDATE),
    Code.CLEAN_UNUSED_TOPIC: row(UPDATE),
    Code.DELETE_EXPIRED_COMMITLOG: row(UPDATE),
    Code.VIEW_BROKER_STATS_DATA: row(GET, statsName="TOPIC_PUT_NUMS", statsKey="T"),
    Code.GET_BROKER_CONSUME_STATS: row(GET, isOrder="false"),
    Code.CHECK_ROCKSDB_CQ_WRITE_PROGRESS: row("Topic:T Get", topic="T"),
    Code.EXPORT_ROCKSDB_CONFIG_TO_JSON: row(GET, configType="topics"),
    Code.POP_ROLLBACK: row(UPDATE),
    Code.REGISTER_FILTER_SERVER: row(UPDATE, filterServerAddr="127.0.0.1:1"),
    Code.GET_BROKER_HA_STATUS: row(GET),
    Code.GET_ALL_CONSUMER_OFFSET: row(GET),
    Code.GET_ALL_DELAY_OFFSET: row(GET),
    Code.GET_TIMER_CHECK_POINT: row(GET),
    Code.GET_TIMER_METRICS: row(GET),
}  # fmt: skip

NAMESRV: dict[int, Row] = {
    Code.PUT_KV_CONFIG: row(UPDATE, namespace="n", key="k", value="v"),
    Code.GET_KV_CONFIG: row(GET, namespace="n", key="k"),
    Code.DELETE_KV_CONFIG: row(UPDATE, namespace="n", key="k"),
    Code.GET_KVLIST_BY_NAMESPACE: row(GET, namespace="n"),
    Code.REGISTER_BROKER: row(UPDATE),
    Code.UNREGISTER_BROKER: row(UPDATE),
    Code.BROKER_HEARTBEAT: row(UPDATE),
    Code.QUERY_DATA_VERSION: row(GET),
    Code.GET_BROKER_MEMBER_GROUP: row(GET),
    Code.GET_BROKER_CLUSTER_INFO: row(GET),
    Code.GET_ROUTEINFO_BY_TOPIC: row("Topic:T Pub|Sub|Get", topic="T"),
    Code.WIPE_WRITE_PERM_OF_BROKER: row(UPDATE, brokerName="b"),
    Code.ADD_WRITE_PERM_OF_BROKER: row(UPDATE, brokerName="b"),
    Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: row(TOPICS),
    Code.GET_TOPICS_BY_CLUSTER: row(TOPICS, cluster="c"),
    Code.GET_SYSTEM_TOPIC_LIST_FROM_NS: row(TOPICS),
    Code.GET_UNIT_TOPIC_LIST: row(TOPICS),
    Code.GET_HAS_UNIT_SUB_TOPIC_LIST: row(TOPICS),
    Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: row(TOPICS),
    Code.DELETE_TOPIC_IN_NAMESRV: row(UPDATE, topic="T"),
    Code.REGISTER_TOPIC_IN_NAMESRV: row(UPDATE, topic="T"),
    Code.UPDATE_NAMESRV_CONFIG: row(UPDATE),
    Code.GET_NAMESRV_CONFIG: row(GET),
}

CONTROLLER: dict[int, Row] = {
    Code.BROKER_HEARTBEAT: row(UPDATE),
    Code.CONTROLLER_ALTER_SYNC_STATE_SET: row(UPDATE, brokerName="b"),
    Code.CONTROLLER_ELECT_MASTER: row(UPDATE, brokerName="b"),
    Code.CONTROLLER_REGISTER_BROKER: row(UPDATE, brokerName="b"),
    Code.CONTROLLER_GET_REPLICA_INFO: row(GET, brokerName="b"),
    Code.CONTROLLER_GET_METADATA_INFO: row(GET),
    Code.CONTROLLER_GET_SYNC_STATE_DATA: row(GET, body=b'["b"]'),
    Code.CONTROLLER_GET_NEXT_BROKER_ID: row(GET, brokerName="b"),
    Code.CONTROLLER_APPLY_BROKER_ID: row(UPDATE, brokerName="b"),
    Code.UPDATE_CONTROLLER_CONFIG: row(UPDATE),
    Code.GET_CONTROLLER_CONFIG: row(GET),
    Code.CLEAN_BROKER_DATA: row(UPDATE, brokerName="b"),
}
