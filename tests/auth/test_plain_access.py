"""The checks of ACL 1.0; the texts were recorded from 4.9.7, without the Java source's line."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest

from trocket.auth.need_tables import NEEDS_OF_BROKER
from trocket.auth.needs import Places
from trocket.auth.plain_access import PlainAccess
from trocket.auth.plain_acl import PlainAcl, read_file
from trocket.remoting.channel import Channel
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.errors import RequestRefused
from trocket.remoting.signature import SIGNATURE, sign

ACCOUNTS = """\
globalWhiteRemoteAddresses: [10.9.9.*]
accounts:
- {accessKey: admin-user, secretKey: admin-secret, admin: true}
- accessKey: plain-user
  secretKey: 12345678
  whiteRemoteAddress: 10.8.8.8
  topicPerms: [pubTopic=PUB, subTopic=SUB, bothTopic=PUB|SUB, badTopic=WHAT, 'starTopic*=PUB']
  groupPerms: [subGroup=SUB, pubGroup=PUB, denied=DENY]
- {accessKey: admin-limited, secretKey: admin-secret, admin: true, topicPerms: [pubTopic=PUB]}
- accessKey: with-defaults
  secretKey: 12345678
  defaultTopicPerm: PUB|SUB
  defaultGroupPerm: SUB
  topicPerms: [secret=DENY]
"""
SECRETS = {
    "admin-user": "admin-secret",
    "plain-user": "12345678",
    "admin-limited": "admin-secret",
    "with-defaults": "12345678",
    "nobody-here": "xxxxxxxx",
}
EXCEPTION = "org.apache.rocketmq.acl.common.AclException: "

Ask = Callable[..., str]


@pytest.fixture
def ask() -> Ask:
    """Send a request; returns "" if it passes, or the text of its refusal."""
    acl = PlainAcl([read_file(ACCOUNTS.encode(), "x.yml")])
    access = PlainAccess(
        lambda: acl, NEEDS_OF_BROKER, Places("DefaultCluster", lambda offset: "subTopic")
    )

    def ask(
        code: int,
        fields: dict[str, str] | None = None,
        *,
        user: str | None = "plain-user",
        body: bytes = b"",
        host: str = "10.1.1.1",
        signature: str | None = None,
    ) -> str:
        ext_fields = dict(fields or {})
        if user is not None:
            sign(ext_fields, body, user, SECRETS[user])
        if signature is not None:
            ext_fields[SIGNATURE] = signature
        request = RemotingCommand(code, ext_fields, body)
        channel = cast("Channel", SimpleNamespace(remote_address=f"{host}:1234", attributes={}))
        try:
            access.check(request, channel)
        except RequestRefused as refusal:
            has_prefix = refusal.code == 1 and refusal.remark.startswith(EXCEPTION)
            return refusal.remark.removeprefix(EXCEPTION) if has_prefix else repr(refusal)
        return ""

    return ask


def send(topic: str) -> dict[str, str]:
    return {"topic": topic, "producerGroup": "producers"}


def send_v2(topic: str) -> dict[str, str]:
    return {"b": topic, "a": "producers"}


def pull(topic: str, group: str) -> dict[str, str]:
    return {"topic": topic, "consumerGroup": group}


NO_TOPIC = "No default permission for topic:"
NO_GROUP = "No default permission for group:"
NO_ADMIN = "Need admin permission for request code={}, but accessKey=plain-user is not"


@pytest.mark.parametrize(
    ("code", "fields", "text"),
    [
        (10, send("pubTopic"), ""),
        (10, send("bothTopic"), ""),
        (10, send("subTopic"), f"{NO_TOPIC}subTopic"),
        (10, send("badTopic"), f"{NO_TOPIC}badTopic"),
        (10, send("other"), f"{NO_TOPIC}other"),
        (10, send("starTopicX"), f"{NO_TOPIC}starTopicX"),
        (10, send("RMQ_SYS_TRACE_TOPIC"), ""),
        (10, send("%RETRY%subGroup"), ""),
        (10, send("%RETRY%other"), f"{NO_GROUP}other"),
        (310, send_v2("pubTopic"), ""),
        (310, send_v2("subTopic"), f"{NO_TOPIC}subTopic"),
        (320, send_v2("subTopic"), f"{NO_TOPIC}subTopic"),
        (325, send_v2("DefaultCluster_REPLY_TOPIC"), ""),
        (325, send_v2("Other_REPLY_TOPIC"), f"{NO_TOPIC}Other_REPLY_TOPIC"),
        (11, pull("subTopic", "subGroup"), ""),
        (11, pull("pubTopic", "subGroup"), f"{NO_TOPIC}pubTopic"),
        (11, pull("subTopic", "pubGroup"), f"{NO_GROUP}pubGroup"),
        (11, pull("subTopic", "other"), f"{NO_GROUP}other"),
        (11, pull("subTopic", "denied"), f"{NO_GROUP}denied"),
        (11, pull("%RETRY%subGroup", "subGroup"), ""),
        (11, pull("RMQ_SYS_TRACE_TOPIC", "subGroup"), f"{NO_TOPIC}RMQ_SYS_TRACE_TOPIC"),
        (12, {"topic": "subTopic"}, ""),
        (12, {"topic": "pubTopic"}, f"{NO_TOPIC}pubTopic"),
        (15, pull("subTopic", "subGroup"), ""),
        (15, pull("other", "subGroup"), f"{NO_TOPIC}other"),
        (35, {"producerGroup": "producers"}, ""),
        (35, {"consumerGroup": "other"}, f"{NO_GROUP}other"),
        (36, {"group": "subGroup", "offset": "0", "delayLevel": "0"}, ""),
        (36, {"group": "other", "offset": "0", "delayLevel": "0"}, f"{NO_GROUP}other"),
        (38, {"consumerGroup": "subGroup"}, ""),
        (38, {"consumerGroup": "pubGroup"}, f"{NO_GROUP}pubGroup"),
        (17, {"topic": "pubTopic"}, NO_ADMIN.format(17)),
        (25, {}, NO_ADMIN.format(25)),
        (200, {}, NO_ADMIN.format(200)),
        (207, {"groupName": "subGroup"}, NO_ADMIN.format(207)),
        (215, {"topic": "pubTopic"}, NO_ADMIN.format(215)),
    ],
)
def test_codes_that_rocketmq_checks(ask: Ask, code: int, fields: dict[str, str], text: str) -> None:
    assert ask(code, fields) == text


@pytest.mark.parametrize(
    ("code", "fields", "text"),
    [
        # RocketMQ lets every account do these.
        (14, pull("subTopic", "subGroup"), ""),
        (14, pull("pubTopic", "pubGroup"), ""),
        (14, pull("other", "subGroup"), f"{NO_TOPIC}other"),
        (29, {"topic": "subTopic"}, ""),
        (30, {"topic": "pubTopic"}, ""),
        (30, {"topic": "other"}, f"{NO_TOPIC}other"),
        (31, {"topic": "%RETRY%subGroup"}, ""),
        (26, {}, NO_ADMIN.format(26)),
        (28, {}, NO_ADMIN.format(28)),
        (18, {}, NO_ADMIN.format(18)),
        (21, {}, NO_ADMIN.format(21)),
        (222, {"topic": "subTopic", "group": "subGroup"}, NO_ADMIN.format(222)),
        *((code, {}, NO_ADMIN.format(code)) for code in range(50, 55)),
        (9_999, {}, NO_ADMIN.format(9_999)),
    ],
)
def test_codes_that_rocketmq_leaves_open(
    ask: Ask, code: int, fields: dict[str, str], text: str
) -> None:
    if code == 18:
        assert ask(code, fields, body=b'{"topicConfigList":[{"topicName":"t"}]}') == text
    else:
        assert ask(code, fields) == text


def heartbeat(group: str, topic: str) -> bytes:
    consumer = {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": [
            {"topic": topic, "subString": "*"},
            {"topic": f"%RETRY%{group}", "subString": "*"},
        ],
    }
    producers = [{"groupName": "any-producers"}]
    data = {"clientID": "c", "producerDataSet": producers, "consumerDataSet": [consumer]}
    return json.dumps(data).encode()


def test_heartbeats(ask: Ask) -> None:
    assert ask(34, body=heartbeat("subGroup", "subTopic")) == ""
    assert ask(34, body=heartbeat("other", "subTopic")) == f"{NO_GROUP}other"
    assert ask(34, body=heartbeat("subGroup", "pubTopic")) == f"{NO_TOPIC}pubTopic"
    assert ask(34, body=b"garbage") != ""
    assert ask(34, body=b"") != ""


def test_locks_of_ordered_consumers(ask: Ask) -> None:
    def body(topic: str) -> bytes:
        queue = {"topic": topic, "brokerName": "b", "queueId": 0}
        data = {"consumerGroup": "subGroup", "clientId": "c", "mqSet": [queue]}
        return json.dumps(data).encode()

    for code in (41, 42):
        assert ask(code, body=body("subTopic")) == ""
        assert ask(code, body=body("other")) == f"{NO_TOPIC}other"


def test_who_is_not_an_account(ask: Ask) -> None:
    assert ask(10, send("pubTopic"), user=None) == "No accessKey is configured"
    assert ask(10, send("pubTopic"), user="nobody-here") == "No acl config for nobody-here"
    failed = "Check signature failed for accessKey=plain-user"
    assert ask(10, send("pubTopic"), signature="A" * 27 + "=") == failed
    assert ask(10, send("pubTopic"), signature="") == failed
    unsigned = {**send("pubTopic"), "AccessKey": "plain-user"}
    assert ask(10, unsigned, user=None) == failed


def test_a_changed_body_has_the_wrong_signature(ask: Ask) -> None:
    fields = send("pubTopic")
    sign(fields, b"body", "plain-user", SECRETS["plain-user"])
    failed = "Check signature failed for accessKey=plain-user"
    assert ask(10, fields, user=None, body=b"body") == ""
    assert ask(10, fields, user=None, body=b"bodx") == failed
    assert ask(10, {**fields, "topic": "bothTopic"}, user=None, body=b"body") == failed


def test_administrators(ask: Ask) -> None:
    for code in (10, 17, 25, 26, 50, 54, 9_999):
        assert ask(code, send("other"), user="admin-user") == ""
    assert ask(17, {"topic": "other"}, user="admin-limited") == ""
    assert ask(10, send("pubTopic"), user="admin-limited") == ""
    assert ask(10, send("other"), user="admin-limited") == f"{NO_TOPIC}other"


def test_defaults(ask: Ask) -> None:
    assert ask(11, pull("other", "other"), user="with-defaults") == ""
    assert ask(10, send("secret"), user="with-defaults") == f"{NO_TOPIC}secret"


def test_white_addresses_need_no_signature(ask: Ask) -> None:
    assert ask(25, user=None, host="10.9.9.1") == ""
    named = {"AccessKey": "plain-user"}
    assert ask(25, named, user=None, host="10.8.8.8") == ""
    assert ask(25, user=None, host="10.8.8.8") == "No accessKey is configured"
    assert ask(25, named, user=None, host="10.8.8.9").startswith("Check signature failed")
    assert ask(25, named, user=None, host="[::ffff:10.8.8.8]") == ""


def test_a_decision_is_kept_only_while_the_accounts_are() -> None:
    def read(perm: str) -> PlainAcl:
        text = "accounts:\n- {accessKey: plain-user, secretKey: 12345678, topicPerms: [T=%s]}"
        return PlainAcl([read_file((text % perm).encode(), "x.yml")])

    current = read("PUB")
    access = PlainAccess(lambda: current, NEEDS_OF_BROKER, Places("DefaultCluster"))
    fields = send("T")
    sign(fields, b"", "plain-user", "12345678")
    channel = cast("Channel", SimpleNamespace(remote_address="10.1.1.1:1234", attributes={}))
    for _ in range(2):
        access.check(RemotingCommand(10, fields, b""), channel)
    current = read("SUB")
    for _ in range(2):
        with pytest.raises(RequestRefused, match="No default permission for topic:T"):
            access.check(RemotingCommand(10, fields, b""), channel)
    current = read("PUB|SUB")
    access.check(RemotingCommand(10, fields, b""), channel)
