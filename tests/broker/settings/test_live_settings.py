"""UPDATE_BROKER_CONFIG: each key takes effect at once, or is refused by its name."""

from __future__ import annotations

import ast
import dataclasses
import json
import logging
import re
from pathlib import Path

import pytest
import trio

import trocket
from trocket.broker.settings.config import BrokerConfig, known_keys
from trocket.broker.settings.config_checks import read_broker_config
from trocket.common.config import key_of, parse_properties, to_properties
from trocket.common.log_levels import LogLevel, apply_levels
from trocket.disk.memory_disk import MemoryDisk
from trocket.disk.position import START
from trocket.remoting import fastjson
from trocket.remoting.bodies import RegisterBrokerBody
from trocket.remoting.client import RemotingClient
from trocket.remoting.response_codes import ResponseCode
from trocket.remoting.server import RemotingServer
from trocket.remoting.turn import Turn
from trocket.store.config import BrokerRole, MessageStoreConfig

from ...kit import (
    broker_and_client,
    broker_client,
    pull_fields,
    send_fields,
    topic_fields,
)
from ...kit.client import Client

UPDATE, SHOW, SEND, SEND_BATCH, PULL, LITE_PULL = 25, 26, 310, 320, 11, 361
REGISTER = 103
PATH = "/etc/broker.conf"

FIELDS = {
    key_of(field): field
    for config in (BrokerConfig, MessageStoreConfig)
    for field in dataclasses.fields(config)
}
GOOD = {
    "autoCreateGroupsPerMinute": "10",
    "autoCreateGroupsPerMinuteAndAddress": "1",
    "autoCreateSubscriptionGroup": "false",
    "autoCreateTopicEnable": "false",
    "autoCreateTopicsPerMinute": "10",
    "autoCreateTopicsPerMinuteAndAddress": "1",
    "brokerPermission": "4",
    "brokerTopicEnable": "false",
    "channelExpiredTimeout": "60000",
    "cleanFileForciblyEnable": "false",
    "cleanResourceInterval": "5000",
    "clearRetryTopicWhenDeleteTopic": "false",
    "clientsPerGroupMax": "10",
    "clusterTopicEnable": "false",
    "compressedRegister": "true",
    "connectionsMax": "500",
    "connectionsPerAddressMax": "100",
    "defaultMessageRequestMode": "POP",
    "defaultPopShareQueueNum": "2",
    "defaultTopicQueueNums": "3",
    "deleteCommitLogFilesInterval": "50",
    "deleteConsumeQueueFilesInterval": "50",
    "deleteFileBatchMax": "5",
    "deleteWhen": "04;16",
    "diskFreeBytesEnough": "0",
    "diskMaxUsedSpaceRatio": "70",
    "diskSpaceCleanForciblyRatio": "80",
    "diskSpaceWarningLevelRatio": "95",
    "enableConnectionMetrics": "false",
    "enableLagAndDlqMetrics": "false",
    "enableMessageStoreMetrics": "false",
    "enableMixedMessageType": "true",
    "enableNotifyAfterPopOrderLockRelease": "false",
    "enablePopBufferMerge": "false",
    "enablePopMessageThreshold": "true",
    "enablePopMetrics": "false",
    "enableRemotingMetrics": "false",
    "enableRequestMetrics": "false",
    "enableRetryTopicV2": "true",
    "enableSplitRegistration": "true",
    "enableStatsMetrics": "false",
    "enableTransactionMetrics": "false",
    "fileReservedTime": "48",
    "filterDataCleanTimeSpan": "1000",
    "filterSupportRetry": "true",
    "flushConsumeQueueThoroughInterval": "5000",
    "flushConsumerOffsetInterval": "1000",
    "flushDelayOffsetInterval": "5000",
    "flushIntervalCommitLog": "250",
    "flushIntervalConsumeQueue": "100",
    "forceRegister": "false",
    "forwardTimeout": "1000",
    "groupsMax": "1000",
    "haMaxGapNotInSync": "1024",
    "haTransferBatchSize": "65536",
    "heldPullsMax": "10",
    "heldPullsPerConnectionMax": "10",
    "heldPullsPerGroupMax": "10",
    "initPopOffsetByCheckMsgInMem": "false",
    "litePullMessageEnable": "false",
    "loadBalancePollNameServerInterval": "10000",
    "logLevel": "WARNING",
    "logLevels": "broker.pulling:DEBUG,store:ERROR",
    "longPollingEnable": "false",
    "maxFilterMessageSize": "8000",
    "maxMessageFilterNumForNotification": "8",
    "maxMessageSize": "1000",
    "maxMsgsNumBatch": "32",
    "maxPopPollingSize": "100",
    "maxTransferBytesOnMessageInDisk": "1000",
    "maxTransferCountOnMessageInDisk": "4",
    "metricsOtelCardinalityLimit": "100",
    "metricsPerQueue": "true",
    "notifyConsumerIdsChangedEnable": "false",
    "popCkMaxBufferSize": "1000",
    "popCkOffsetMaxQueueSize": "100",
    "popCkStayBufferTime": "5000",
    "popCkStayBufferTimeOut": "2000",
    "popFromRetryProbability": "50",
    "popFromRetryProbabilityForPriority": "10",
    "popInflightMessageThreshold": "100",
    "popLongPollingForceNotifyInterval": "100",
    "popPollingMapSize": "100",
    "popPollingSize": "10",
    "popResponseReturnActualRetryTopic": "true",
    "popReviveSkipIfGroupAbsent": "false",
    "priorityOrderAsc": "false",
    "recallMessageEnable": "true",
    "regionId": "Region B",
    "registerBrokerTimeoutMills": "5000",
    "registerNameServerPeriod": "20000",
    "rejectPullConsumerEnable": "true",
    "rejectTransactionMessage": "true",
    "requestsInFlightMax": "100",
    "requestsInFlightPerAddressMax": "1000",
    "retrieveMessageFromPopRetryTopicV1": "false",
    "sendThreadPoolQueueCapacity": "5",
    "serverLoadBalancerEnable": "false",
    "subscriptionExpiredTimeout": "600001",
    "shortPollingTimeMills": "500",
    "skipWhenCKRePutReachMaxTimes": "true",
    "slaveReadEnable": "true",
    "slaveSyncInterval": "20000",
    "splitRegistrationSize": "100",
    "storeBytesMax": "10000000000",
    "storeReplyMessageEnable": "false",
    "syncFromLastFile": "true",
    "timerFlushIntervalMs": "500",
    "timerMaxDelaySec": "60",
    "topicsMax": "1000",
    "traceOn": "false",
    "traceTopicEnable": "true",
    "transactionCheckInterval": "10000",
    "transactionCheckMax": "5",
    "transactionTimeOut": "3000",
    "unreadAnswersMax": "1048576",
    "unreadAnswersTimeoutSeconds": "5",
    "useMessageFilterForNotification": "false",
    "useSeparateRetryQueue": "true",
    "useServerSideResetOffset": "false",
    "verifyOldRecords": "false",
}
"""A value that is not the default, for each key that takes effect at once."""

FIXED = sorted(FIELDS.keys() - GOOD.keys())


@pytest.fixture(autouse=True)
def _usual_log_levels():
    yield
    apply_levels(LogLevel.DEFAULT, {})


async def update(client: Client, text: str) -> None:
    answer = await client.ask(UPDATE, {}, text.encode())
    assert answer.code == 0, answer.remark


async def shown(client: Client) -> dict[str, str]:
    answer = await client.ask(SHOW, {})
    return {entry.key: entry.value for entry in parse_properties(answer.body.decode())}


def saved(disk: MemoryDisk) -> str:
    file = disk.open(PATH)
    return file.pread(file.size(), START).decode()


# ---- the matrix ----------------------------------------------------------------------------


def test_every_key_that_is_declared_so_has_a_good_value_here() -> None:
    assert GOOD.keys() == {key for key, field in FIELDS.items() if field.metadata.get("live")}


@pytest.mark.slow
@pytest.mark.parametrize("key", sorted(GOOD))
async def test_a_good_value_takes_effect_is_shown_and_saved(autojump_clock, key: str) -> None:
    disk = MemoryDisk()
    async with broker_client(disk, config_path=PATH) as client:
        before = await shown(client)
        assert before[key] != GOOD[key]
        await update(client, f"{key} = {GOOD[key]}\n")
        assert await shown(client) == before | {key: GOOD[key]}
    assert saved(disk) == f"{key}={GOOD[key]}\n"
    entries = parse_properties(saved(disk))
    configs = read_broker_config(entries, BrokerConfig(), MessageStoreConfig())[:2]
    assert GOOD[key] in [dict(to_properties(config)).get(key) for config in configs]


@pytest.mark.parametrize("key", FIXED)
async def test_any_other_key_is_refused_by_name_and_nothing_is_done(key: str) -> None:
    disk = MemoryDisk()
    async with broker_client(disk, config_path=PATH) as client:
        before = await shown(client)
        value = before.get(key) or "1"
        answer = await client.ask(UPDATE, {}, f"fileReservedTime=1\n{key}={value}\n".encode())
        assert answer.code == ResponseCode.NO_PERMISSION
        is_guarded = "guarded" in FIELDS[key].metadata
        why = "no request may change it" if is_guarded else "read at the start only"
        assert f"{key}: it" in answer.remark
        assert why in answer.remark
        assert await shown(client) == before
    assert not disk.exists(PATH)


def test_no_path_and_nothing_that_runs_code_or_opens_the_log_may_ever_change() -> None:
    words = ("path", "file", "url", "address", "addr", "allowed", "java", "python", "class")
    suspicious = {key for key in FIELDS if any(word in key.lower() for word in words)}
    harmless = {"cleanFileForciblyEnable", "deleteCommitLogFilesInterval", "deleteFileBatchMax"}
    harmless |= {"deleteConsumeQueueFilesInterval", "fileReservedTime", "syncFromLastFile"}
    harmless |= {key for key in GOOD if re.search("PerAddressMax|PerMinuteAndAddress", key)}
    assert suspicious & GOOD.keys() <= harmless


@pytest.mark.parametrize(
    ("key", "code", "remark"),
    [
        ("brokerConfigPath", ResponseCode.NO_PERMISSION, "Can not update config in black list."),
        ("configBlackList", ResponseCode.NO_PERMISSION, "Can not update config in black list."),
        ("rocketmqHome", ResponseCode.NO_PERMISSION, "Can not update config in black list."),
        ("sendMessageThreadPoolNums", ResponseCode.SYSTEM_ERROR, "would have no effect"),
        ("noSuchKey", ResponseCode.SYSTEM_ERROR, "unknown key 'noSuchKey'"),
    ],
)
async def test_a_key_that_trocket_does_not_have_is_refused_by_name(key, code, remark) -> None:
    async with broker_client() as client:
        answer = await client.ask(UPDATE, {}, f"{key}=1".encode())
        assert answer.code == code
        assert remark in answer.remark
        assert key in answer.remark


@pytest.mark.slow
async def test_no_unsupported_key_of_rocketmq_is_accepted() -> None:
    async with broker_client() as client:
        for key in sorted(known_keys().keys() - FIELDS.keys()):
            answer = await client.ask(UPDATE, {}, f"{key}=1".encode())
            assert answer.code != 0, key
            assert key in answer.remark


@pytest.mark.parametrize(
    ("text", "remark"),
    [
        ("brokerPermission=8", "brokerPermission must be a plain whole number at least 0 and at"),
        (
            "flushIntervalCommitLog=-1",
            "flushIntervalCommitLog must be a plain whole number at least",
        ),
        ("flushIntervalConsumeQueue=0", "flushIntervalConsumeQueue must be a plain whole number"),
        (r"regionId=a\u0002TAGS\u0001b", "regionId must be at most 255 printable characters"),
        (f"regionId={256 * 'x'}", "regionId must be at most 255 printable characters"),
        ("maxMessageSize=0", "maxMessageSize must be a plain whole number at least 1"),
        ("fileReservedTime=two", "fileReservedTime must be a plain whole number"),
        ("traceOn=yes", "traceOn must be true or false"),
        ("deleteWhen=25", "deleteWhen: "),
        ("storeBytesMax=1", "storeBytesMax must hold three commit log files"),
        ("logLevel=LOUD", "logLevel must be one of DEFAULT, DEBUG"),
        ("logLevels=nothing:INFO", "logLevels: there is no part 'nothing'"),
    ],
)
async def test_a_wrong_value_is_refused_and_nothing_is_done(text: str, remark: str) -> None:
    async with broker_client() as client:
        before = await shown(client)
        answer = await client.ask(UPDATE, {}, f"transactionCheckMax=3\n{text}".encode())
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert remark in answer.remark
        assert await shown(client) == before


async def test_an_empty_body_is_a_change_of_nothing() -> None:
    async with broker_client() as client:
        await update(client, "")
        await update(client, "# nothing")


async def test_each_change_is_a_new_version_of_the_configuration() -> None:
    async with broker_client() as client:
        await update(client, "traceOn=false")
        await update(client, "traceOn=true\nfileReservedTime=1")
        await client.ask(UPDATE, {}, b"noSuchKey=1")
        answer = await client.ask(SHOW, {})
        assert fastjson.loads(answer.ext_fields["version"].encode())["counter"] == 2


@pytest.mark.slow
def test_no_part_keeps_a_copy_of_a_key_that_may_change_from_when_it_was_created() -> None:
    """A copy belongs into a method that is called again: `settings_changed` for instance."""
    names = {FIELDS[key].name for key in GOOD}
    # Each of these is set again by its part, or is a default that the file's table overrides.
    allowed = {
        ("part.py", name) for name in ("channel_expired_timeout", "filter_data_clean_time_span")
    }
    allowed.add(("log_writer.py", "max_message_size"))
    root = Path(trocket.__file__).parent
    copies = set()
    for path in [*root.glob("broker/**/*.py"), *root.glob("store/**/*.py")]:
        if "offline" in path.parts:
            continue
        for function in ast.walk(ast.parse(path.read_text())):
            if not isinstance(function, ast.FunctionDef) or function.name != "__init__":
                continue
            later = {  # read when it is called, so no copy
                id(node)
                for made in ast.walk(function)
                if isinstance(made, ast.Lambda)
                for node in ast.walk(made)
            }
            copies |= {
                (path.name, node.attr)
                for node in ast.walk(function)
                if id(node) not in later
                and isinstance(node, ast.Attribute)
                and node.attr in names
                and "config" in ast.unparse(node.value)
            }
    assert copies <= allowed


# ---- effects of keys that parts copy -------------------------------------------------------


async def test_broker_permission_limits_pulls_and_sends_at_once(autojump_clock) -> None:
    async with broker_client() as client:
        assert (await client.ask(SEND, send_fields(), b"1")).code == 0
        assert (await client.ask(PULL, pull_fields())).code == 0
        await update(client, "brokerPermission=2")
        refused = await client.ask(PULL, pull_fields())
        assert (refused.code, refused.remark) == (
            ResponseCode.NO_PERMISSION,
            "the broker[127.0.0.1] pulling message is forbidden",
        )
        await update(client, "brokerPermission=4")
        assert (await client.ask(PULL, pull_fields())).code == 0
        assert (await client.ask(17, topic_fields("O", order="true"))).code == 0
        refused = await client.ask(SEND, send_fields("O"), b"2")
        assert (refused.code, refused.remark) == (
            ResponseCode.NO_PERMISSION,
            "the broker[127.0.0.1] sending message is forbidden",
        )
        await update(client, "brokerPermission=6")
        assert (await client.ask(SEND, send_fields("O"), b"2")).code == 0


async def test_broker_permission_is_registered_before_the_answer(autojump_clock) -> None:
    perms: list[dict[str, int]] = []

    def register(request, channel):
        body = RegisterBrokerBody.from_body(request.body)
        table = body.topic_config_serialize_wrapper.topic_config_table
        perms.append({name: topic.perm for name, topic in table.items()})
        return request.answer()

    async with trio.open_nursery() as nursery:

        async def connect(host: str, port: int) -> trio.abc.Stream:
            near, far = trio.testing.memory_stream_pair()
            server = RemotingServer({REGISTER: register}, turn=Turn())
            nursery.start_soon(server.serve_stream, near)
            return far

        asking = RemotingClient(open_stream=connect)
        async with broker_and_client(client=asking, namesrv_addr="192.0.2.9:9876") as (
            broker,
            client,
        ):
            await client.ask(SEND, send_fields(), b"1")
            version = broker.controller.topics.data_version.counter
            perms.clear()
            await update(client, "brokerPermission=4")
            assert broker.controller.topics.data_version.counter == version + 1
            assert perms[-1]["T"] == 4
        nursery.cancel_scope.cancel()


async def test_max_message_size_counts_for_the_next_send_of_every_kind(autojump_clock) -> None:
    async with broker_client() as client:
        body = bytes(1000)
        assert (await client.ask(SEND, send_fields(), body)).code == 0
        await update(client, "maxMessageSize=999")
        for code, fields in ((SEND, send_fields()), (SEND_BATCH, send_fields(m="true"))):
            answer = await client.ask(code, fields, body)
            assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        await update(client, "maxMessageSize=1000")
        assert (await client.ask(SEND, send_fields(), body)).code == 0


async def test_what_was_accepted_is_delivered_although_max_message_size_was_lowered(
    autojump_clock,
) -> None:
    async with broker_client() as client:
        body = 1000 * b"x"
        delayed = send_fields(i="DELAY\x011\x02")
        half = send_fields(i="TRAN_MSG\x01true\x02PGROUP\x01P\x02UNIQ_KEY\x01K\x02")
        assert (await client.ask(SEND, delayed, body)).code == 0
        await update(client, "maxMessageSize=999")
        for fields in (delayed, half):
            assert (await client.ask(SEND, fields, body)).code == ResponseCode.MESSAGE_ILLEGAL
        await trio.sleep(5)
        pulled = await client.ask(PULL, pull_fields())
        assert pulled.code == 0
        assert body in pulled.body


async def test_region_and_trace_switch_are_in_the_next_answer_and_message(autojump_clock) -> None:
    async with broker_client() as client:
        answer = await client.ask(SEND, send_fields(), b"1")
        assert answer.ext_fields["TRACE_ON"] == "true"
        await update(client, "traceOn=false\nregionId=B")
        answer = await client.ask(SEND, send_fields(), b"2")
        fields = answer.ext_fields
        assert (fields["TRACE_ON"], fields["MSG_REGION"]) == ("false", "B")
        pulled = await client.ask(PULL, pull_fields(queueOffset=1))
        assert b"TRACE_ON\x01false" in pulled.body
        assert b"MSG_REGION\x01B" in pulled.body


async def test_lite_pulls_are_refused_at_once(autojump_clock) -> None:
    async with broker_client() as client:
        await client.ask(SEND, send_fields(), b"1")
        assert (await client.ask(LITE_PULL, pull_fields())).code == 0
        await update(client, "litePullMessageEnable=false")
        assert (await client.ask(LITE_PULL, pull_fields())).code == ResponseCode.NO_PERMISSION
        assert (await client.ask(PULL, pull_fields())).code == 0


async def test_pulls_wait_the_short_time_where_long_polling_was_switched_off(
    autojump_clock,
) -> None:
    async with broker_client() as client:
        await client.ask(SEND, send_fields(), b"1")
        await update(client, "longPollingEnable=false\nshortPollingTimeMills=2000")
        began_s = trio.current_time()
        answer = await client.ask(PULL, pull_fields(queueOffset=1))
        assert answer.code == ResponseCode.PULL_NOT_FOUND
        assert 2 <= trio.current_time() - began_s < 4


async def test_topics_of_first_sends_follow_their_keys(autojump_clock) -> None:
    async with broker_and_client(auto_create_topic_enable=False) as (broker, client):
        topics = broker.controller.topics
        assert (await client.ask(SEND, send_fields("A"), b"1")).code == ResponseCode.TOPIC_NOT_EXIST
        await update(client, "autoCreateTopicEnable=true\ndefaultTopicQueueNums=2")
        assert (await client.ask(SEND, send_fields("A"), b"1")).code == 0
        assert topics.select("A").write_queue_nums == 2
        await update(client, "defaultTopicQueueNums=3")
        assert (await client.ask(SEND, send_fields("B"), b"1")).code == 0
        assert topics.select("B").write_queue_nums == 3
        await update(client, "autoCreateTopicEnable=false")
        assert (await client.ask(SEND, send_fields("C"), b"1")).code == ResponseCode.TOPIC_NOT_EXIST
        assert topics.select("RMQ_SYS_TRACE_TOPIC") is None
        await update(client, "traceTopicEnable=true\nbrokerTopicEnable=false")
        assert topics.select("RMQ_SYS_TRACE_TOPIC") is not None
        assert topics.select("b").perm == 1


async def test_a_silent_client_leaves_after_the_new_time(autojump_clock) -> None:
    async with broker_client() as client:
        body = {"clientID": "c", "producerDataSet": [{"groupName": "PG"}], "consumerDataSet": []}
        assert (await client.ask(34, {}, json.dumps(body).encode())).code == 0
        await update(client, "channelExpiredTimeout=5000")
        with trio.fail_after(30):
            with pytest.raises(trio.EndOfChannel):
                await client.asked()


async def test_the_levels_of_the_log_change_and_are_reset(autojump_clock) -> None:
    def is_enabled(part: str, level: int) -> bool:
        return logging.getLogger(f"trocket.{part}").isEnabledFor(level)

    async with broker_client() as client:
        await update(client, "logLevel=ERROR\nlogLevels=broker.pulling:DEBUG")
        assert is_enabled("broker.pulling.pull_message", logging.DEBUG)
        assert not is_enabled("store.services", logging.WARNING)
        assert (await shown(client))["logLevels"] == "broker.pulling:DEBUG"
        await update(client, "logLevel=DEFAULT\nlogLevels=")
        assert not is_enabled("broker.pulling.pull_message", logging.DEBUG)
        assert is_enabled("store.services", logging.WARNING)


async def test_a_slave_changes_its_own_settings(autojump_clock) -> None:
    async with broker_client(broker_role=BrokerRole.SLAVE, broker_id=1) as client:
        assert (await client.ask(PULL, pull_fields())).code == ResponseCode.SYSTEM_BUSY
        await update(client, "slaveReadEnable=true")
        assert (await client.ask(PULL, pull_fields())).code != ResponseCode.SYSTEM_BUSY
        assert (await shown(client))["slaveReadEnable"] == "true"
