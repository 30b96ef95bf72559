"""Scripts for brokers with accounts: every kind of request by accounts that may and may not.

A script asks for all codes with one account. A refusal is compared in full. Of
a request that passes only its code is: the answers themselves are compared without accounts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from ...remoting.codec import SerializeType
from ...remoting.message import Message
from ...remoting.message_codec import encode_batch
from ...remoting.message_id import encode_offset_id
from ...remoting.request_codes import RequestCode as Code
from ..accounts import LOOPBACK, SUPER, Account, Accounts, Generation, Grant
from ..wire import LONG_MAX, Keys
from .builders import (
    BROKER_NAME,
    CLUSTER,
    Names,
    heartbeat_body,
    json_body,
    properties,
    pull_fields,
    send_fields,
    send_fields_v1,
    subscription,
    topic_fields,
)
from .normalise import Normaliser, Side, Tree
from .pop_parts import pop_fields
from .request import ANY_CODE, SHORT_MAX, BodyKind, FieldValue, Flaw, Request, Script, Signer

# A script for the requests about accounts of ACL 1.0, well and wrongly formed.
#
# The super user signs them.

_UPDATE, _DELETE = Code.UPDATE_AND_CREATE_ACL_CONFIG, Code.DELETE_ACL_CONFIG
_VERSION, _SHOW = Code.GET_BROKER_CLUSTER_ACL_INFO, Code.GET_BROKER_CLUSTER_ACL_CONFIG
_WHITE = Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG


def _version_text() -> Normaliser:
    """The files' paths and times differ; there is a version, and of one file."""

    def change(value: Tree, _: Side) -> Tree:
        return "<a version>" if isinstance(value, str) and "counter" in value else value

    return Normaliser("version_text", ("fields.version", "fields.allAclFileVersion"), change)


def plain_acl(header: SerializeType) -> Script:
    """Accounts made, changed, shown and removed; then what is refused."""
    names = Names("plain-acl", header)
    key, other = names("account-1"), names("account-2")
    ask = partial(Request, signer=Signer(SUPER.keys))
    bad = partial(ask, erroneous=True)
    new = {"accessKey": key, "secretKey": "secret-of-it", "admin": False}
    shown = partial(ask, code=_SHOW, body_kind=BodyKind.JSON)
    steps = (
        ask("an account", _UPDATE, {**new, "topicPerms": "a=PUB,b=SUB", "groupPerms": "g=PUB|SUB",
            "defaultTopicPerm": "DENY", "defaultGroupPerm": "SUB"}),
        ask("without permissions", _UPDATE, {**new, "accessKey": other}),
        ask("changed", _UPDATE, {**new, "secretKey": "another-one", "admin": True,
            "whiteRemoteAddress": "192.0.2.1"}),
        ask("addresses", _WHITE, {"globalWhiteAddrs": "192.0.2.*,198.51.100.1"}),
        shown("after changes"),
        ask("after changes", _VERSION, normalisers=(_version_text(),)),
        ask("the account", _DELETE, {"accessKey": other}),
        bad("again", _DELETE, {"accessKey": other}, expect=210),
        bad("no name", _DELETE, expect=210),
        bad("a short name", _UPDATE, {**new, "accessKey": "short"}, expect=209),
        bad("no secret", _UPDATE, {"accessKey": key, "admin": False}, expect=209),
        bad("no name", _UPDATE, {"secretKey": "secret-of-it", "admin": False}, expect=209),
        bad("a topic without a permission", _UPDATE, {**new, "topicPerms": "a"}, expect=209),
        bad("an unknown permission", _UPDATE, {**new, "groupPerms": "g=WHAT"}, expect=209),
        bad("no addresses", _WHITE, expect=211),
        bad("another file", _WHITE, {"globalWhiteAddrs": "192.0.2.*",
            "aclFileFullPath": "/etc/hostname"}, expect=211),
        shown("after refusals"),
        ask("the last account", _DELETE, {"accessKey": key}),
        shown("at the end"),
    )  # fmt: skip
    return Script("accounts of 1.0", header, steps, area=Generation.ACL_1)


OPEN_TOPIC: Final = "wd-acl-open"
"""The topic that `ABLE` may use."""
CLOSED_TOPIC: Final = "wd-acl-closed"
OPEN_GROUP: Final = "wd-acl-group"
CLOSED_GROUP: Final = "wd-acl-strangers"
ELSEWHERE: Final = "192.0.2.0/24"
"""Addresses for documentation: no test comes from there."""


def _keys(name: str) -> Keys:
    return Keys(f"interop-{name}", f"the-secret-of-{name}")


_PUB_SUB: Final = ("Pub", "Sub")
_ADMIN: Final = ("Create", "Update", "Delete", "Get", "List")
_OPEN: Final = (Grant(f"Topic:{OPEN_TOPIC}", _PUB_SUB), Grant(f"Group:{OPEN_GROUP}", ("Sub",)))

ABLE: Final = Account(_keys("able"), _OPEN)
WEAK: Final = Account(_keys("weak"))
PUBLISHER: Final = Account(_keys("publisher"), (Grant(f"Topic:{OPEN_TOPIC}", ("Pub",)),))
SUBSCRIBER: Final = Account(
    _keys("subscriber"),
    (Grant(f"Topic:{OPEN_TOPIC}", ("Sub",)), Grant(f"Group:{OPEN_GROUP}", ("Sub",))),
)
DENIED: Final = Account(
    _keys("denied"),
    (
        Grant("Topic:*", _PUB_SUB),
        Grant("Group:*", ("Sub",)),
        Grant(f"Topic:{OPEN_TOPIC}", _PUB_SUB, is_denied=True),
    ),
)
BY_DEFAULT: Final = Account(
    _keys("default"),
    (
        Grant("Topic:*", _PUB_SUB, is_default=True),
        Grant("Group:*", ("Sub",), is_default=True),
        Grant(f"Topic:{OPEN_TOPIC}", _PUB_SUB, is_denied=True),
    ),
)
FROM_ELSEWHERE: Final = Account(
    _keys("elsewhere"), tuple(replace(grant, sources=(ELSEWHERE,)) for grant in _OPEN)
)
FROM_HERE: Final = Account(
    _keys("here"), tuple(replace(grant, sources=(LOOPBACK,)) for grant in _OPEN)
)
OPERATOR: Final = Account(
    _keys("operator"),
    (
        Grant("Topic:*", _ADMIN),
        Grant("Group:*", _ADMIN),
        Grant("Cluster:*", _ADMIN),
    ),
)
BY_PREFIX: Final = Account(
    _keys("prefix"), (Grant("Topic:wd-acl-o*", _PUB_SUB), Grant("Group:wd-acl-g*", ("Sub",)))
)
DISABLED: Final = Account(_keys("disabled"), _OPEN, is_enabled=False)
WHITE: Final = Account(_keys("white"), _OPEN, white_address=LOOPBACK)

WHITE_CODE: Final = Code.GET_MAX_OFFSET
"""Of ACL 2.0: needs no account."""

ACL_1: Final = Accounts(
    Generation.ACL_1,
    (ABLE, WEAK, PUBLISHER, SUBSCRIBER, DENIED, BY_DEFAULT, WHITE),
)
ACL_2: Final = Accounts(
    Generation.ACL_2,
    (
        ABLE,
        WEAK,
        PUBLISHER,
        SUBSCRIBER,
        DENIED,
        BY_DEFAULT,
        FROM_ELSEWHERE,
        FROM_HERE,
        OPERATOR,
        BY_PREFIX,
        DISABLED,
    ),
    {
        "authenticationWhitelist": str(WHITE_CODE.value),
        "authorizationWhitelist": str(WHITE_CODE.value),
    },
)
ACCOUNTS: Final = {accounts.generation: accounts for accounts in (ACL_1, ACL_2)}


# ---- what is compared ----------------------------------------------------------------------

_REFUSALS: Final = re.compile(
    r"has no permission to access|is not found\.|is disabled\.|check signature failed"
    r"|username cannot be null|AclException|super user",
    re.IGNORECASE,
)
_JAVA_PLACE: Final = re.compile(r", [\w.$]+\([\w.]+:\d+\)$")
_NONE: Final = "<it passed>"


def _verdict_of_access() -> Normaliser:
    """The answer to a request that passes is compared without accounts: only its code is here.

    A refusal has its text, without the line of Java that ACL 1.0 adds.
    """

    def change(tree: Tree, _: Side) -> Tree:
        assert isinstance(tree, dict)
        remark = tree["remark"]
        if not isinstance(remark, str) or _REFUSALS.search(remark) is None:
            return {"code": tree["code"], "remark": _NONE}
        fields = tree["fields"]
        return {
            "code": tree["code"],
            "remark": _JAVA_PLACE.sub("", remark),
            "fields": fields,
            "body": tree["body"],
        }

    return Normaliser("verdict_of_access", (), change)


_ask = partial(Request, expect=ANY_CODE, normalisers=(_verdict_of_access(),))


# ---- the requests --------------------------------------------------------------------------


@dataclass(frozen=True)
class Ask:
    """A request without an account."""

    code: Code
    fields: dict[str, FieldValue] = field(default_factory=dict)
    body: bytes = b""
    name: str = ""


_ENDED: Final = 8
"""A commit in `commitOrRollback` of 37. Source: common/sysflag/MessageSysFlag.java."""
_NOWHERE: Final = LONG_MAX // 2
"""A physical offset without a message."""
_NO_MESSAGE: Final = encode_offset_id(b"\x7f\0\0\x01\0\0\x27\x10", _NOWHERE)
"""The id of such a message."""


def _messaging(topic: str, group: str) -> Iterator[Ask]:
    """The requests of producers and consumers. No field is empty: see `remoting/signature`."""
    text = properties(KEYS="k")
    queue = {"topic": topic, "queueId": 0}
    retry = f"%RETRY%{group}"
    yield Ask(Code.SEND_MESSAGE, send_fields_v1(topic, text), b"x")
    yield Ask(Code.SEND_MESSAGE_V2, send_fields(topic, text), b"x")
    yield Ask(Code.SEND_MESSAGE_V2, send_fields(retry, text), b"x", "to a retry topic")
    batch = encode_batch([Message(topic, b"x", 0, {"KEYS": "k"})])
    yield Ask(Code.SEND_BATCH_MESSAGE, send_fields(topic, text, m=True), batch)
    replies = f"{CLUSTER}_REPLY_TOPIC"
    yield Ask(Code.SEND_REPLY_MESSAGE_V2, send_fields(replies, text), b"x")
    yield Ask(Code.SEND_REPLY_MESSAGE_V2, send_fields(topic, text), b"x", "to another topic")
    back = {"offset": _NOWHERE, "group": group, "delayLevel": 1, "originMsgId": "x"}
    back |= {"originTopic": topic, "unitMode": False, "maxReconsumeTimes": 3}
    yield Ask(Code.CONSUMER_SEND_MSG_BACK, dict(back))
    end = {"producerGroup": "wd-producers", "tranStateTableOffset": 0, "msgId": "x"}
    end |= {"commitLogOffset": _NOWHERE, "commitOrRollback": _ENDED, "fromTransactionCheck": False}
    yield Ask(Code.END_TRANSACTION, {**end, "topic": topic})
    yield Ask(Code.END_TRANSACTION, dict(end), name="without a topic")
    client = f"client-of-{group}"
    wanted = (subscription(topic), subscription(retry))
    yield Ask(Code.HEART_BEAT, body=heartbeat_body(client, group=group, subscriptions=wanted))
    producer = heartbeat_body(client, producer="wd-producers")
    yield Ask(Code.HEART_BEAT, body=producer, name="of a producer")
    yield Ask(Code.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group})
    queues = [{"topic": topic, "brokerName": BROKER_NAME, "queueId": 0}]
    locked = json_body({"consumerGroup": group, "clientId": client, "mqSet": queues})
    yield Ask(Code.LOCK_BATCH_MQ, body=locked)
    yield Ask(Code.UNLOCK_BATCH_MQ, body=locked)
    beyond = {"queueOffset": 1_000_000}
    yield Ask(Code.PULL_MESSAGE, pull_fields(group, topic, **beyond))
    yield Ask(Code.PULL_MESSAGE, pull_fields(group, retry, **beyond), name="of a retry topic")
    whose = {"consumerGroup": group, **queue}
    yield Ask(Code.UPDATE_CONSUMER_OFFSET, {**whose, "commitOffset": 0})
    yield Ask(Code.QUERY_CONSUMER_OFFSET, {**whose})
    yield Ask(Code.UNREGISTER_CLIENT, {"clientID": client, "consumerGroup": group})
    yield Ask(Code.UNREGISTER_CLIENT, {"clientID": client, "producerGroup": "wd-producers"},
              name="of a producer")  # fmt: skip
    span = {"maxNum": 1, "beginTimestamp": 0, "endTimestamp": LONG_MAX}
    yield Ask(Code.QUERY_MESSAGE, {"topic": topic, "key": "no-such-key", **span})
    yield Ask(Code.VIEW_MESSAGE_BY_ID, {"offset": _NOWHERE})
    yield Ask(Code.VIEW_MESSAGE_BY_ID, {"offset": _NOWHERE, "topic": topic}, name="of a topic")
    yield Ask(Code.SEARCH_OFFSET_BY_TIMESTAMP, {**queue, "timestamp": 0})
    yield Ask(Code.GET_MAX_OFFSET, {**queue})
    yield Ask(Code.GET_MIN_OFFSET, {**queue})
    yield Ask(Code.GET_EARLIEST_MSG_STORETIME, {**queue})
    checked = {"clientId": client, "group": group, "subscriptionData": subscription(topic)}
    yield Ask(Code.CHECK_CLIENT_CONFIG, body=json_body(checked))


def _administration(topic: str, group: str) -> Iterator[Ask]:
    both = {"topic": topic, "group": group}
    yield Ask(Code.UPDATE_AND_CREATE_TOPIC, topic_fields(topic))
    yield Ask(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=json_body({"groupName": group}))
    yield Ask(Code.GET_ALL_TOPIC_CONFIG)
    yield Ask(Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    yield Ask(Code.GET_ALL_CONSUMER_OFFSET)
    yield Ask(Code.GET_ALL_DELAY_OFFSET)
    yield Ask(Code.GET_BROKER_CONFIG)
    yield Ask(Code.GET_BROKER_RUNTIME_INFO)
    yield Ask(Code.UPDATE_BROKER_CONFIG, body=b"brokerPermission=6")
    yield Ask(Code.GET_TOPIC_STATS_INFO, {"topic": topic})
    yield Ask(Code.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": group})
    yield Ask(Code.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "wd-producers"})
    yield Ask(Code.GET_CONSUME_STATS, {"consumerGroup": group, "topic": topic})
    yield Ask(Code.GET_CONSUME_STATS, {"consumerGroup": group}, name="of all topics")
    yield Ask(Code.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": topic})
    yield Ask(Code.QUERY_CONSUME_TIME_SPAN, dict(both))
    yield Ask(Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
    yield Ask(Code.CLEAN_EXPIRED_CONSUMEQUEUE)
    yield Ask(Code.CLEAN_UNUSED_TOPIC)
    yield Ask(Code.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": group, "clientId": "x"})
    direct = {"consumerGroup": group, "clientId": "x", "msgId": _NO_MESSAGE}
    direct |= {"brokerName": BROKER_NAME}
    yield Ask(Code.CONSUME_MESSAGE_DIRECTLY, {**direct, "topic": topic})
    yield Ask(Code.INVOKE_BROKER_TO_RESET_OFFSET, {**both, "timestamp": 0, "isForce": True})
    yield Ask(Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, dict(both))
    yield Ask(Code.QUERY_CORRECTION_OFFSET, {"filterGroups": group, "compareGroup": group,
                                             "topic": topic})  # fmt: skip
    clone = {"srcGroup": group, "destGroup": group, "topic": topic, "offline": False}
    yield Ask(Code.CLONE_GROUP_OFFSET, dict(clone))
    yield Ask(Code.VIEW_BROKER_STATS_DATA, {"statsName": "TOPIC_PUT_NUMS", "statsKey": topic})
    yield Ask(Code.GET_BROKER_CONSUME_STATS, {"isOrder": False})
    yield Ask(Code.QUERY_CONSUME_QUEUE, {"topic": topic, "queueId": 0, "index": 0, "count": 1,
                                         "consumerGroup": group})  # fmt: skip
    yield Ask(Code.RESUME_CHECK_HALF_MESSAGE, {"msgId": _NO_MESSAGE})
    yield Ask(Code.GET_ALL_PRODUCER_INFO)
    yield Ask(Code.DELETE_EXPIRED_COMMITLOG)
    yield Ask(Code.DELETE_SUBSCRIPTIONGROUP, {"groupName": f"{group}-gone"})
    yield Ask(Code.DELETE_TOPIC_IN_BROKER, {"topic": f"{topic}-gone"})


def _since_5(topic: str, group: str) -> Iterator[Ask]:
    """Requests that only brokers of 5.x have."""
    yield Ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
    yield Ask(Code.GET_TOPIC_CONFIG, {"topic": topic, "lo": True})
    yield Ask(Code.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": OPEN_GROUP})
    yield Ask(Code.QUERY_TOPICS_BY_CONSUMER, {"group": group})
    yield Ask(Code.QUERY_SUBSCRIPTION_BY_CONSUMER, {"group": group, "topic": topic})
    yield Ask(Code.LITE_PULL_MESSAGE, pull_fields(group, topic, queueOffset=1_000_000))
    yield Ask(Code.RECALL_MESSAGE, {"topic": topic, "recallHandle": "x", "producerGroup": "p"})
    yield Ask(Code.UPDATE_AND_CREATE_TOPIC_LIST, body=json_body({"topicConfigList": []}))
    groups = json_body({"groupConfigList": []})
    yield Ask(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body=groups)
    yield Ask(Code.GET_TIMER_CHECK_POINT)
    yield Ask(Code.GET_TIMER_METRICS)
    yield Ask(Code.GET_ALL_MESSAGE_REQUEST_MODE)
    yield Ask(Code.GET_BROKER_HA_STATUS)


def _popping(topic: str, group: str) -> Iterator[Ask]:
    """The requests of consumers that pop; no messages, because those of other scripts differ."""
    queue = {"consumerGroup": group, "topic": topic, "queueId": 0}
    receipt = f"0 1 60000 0 0 {BROKER_NAME} 0 0"
    settled = {**queue, "extraInfo": receipt, "offset": _NOWHERE}
    yield Ask(Code.POP_MESSAGE, pop_fields(group, topic, maxMsgNums=0))
    yield Ask(Code.PEEK_MESSAGE, {**queue, "maxMsgNums": 0})
    yield Ask(Code.NOTIFICATION, {**queue, "pollTime": 0, "bornTime": 0})
    yield Ask(Code.POLLING_INFO, {**queue})
    yield Ask(Code.ACK_MESSAGE, {**settled})
    yield Ask(Code.CHANGE_MESSAGE_INVISIBLETIME, {**settled, "invisibleTime": 60_000})
    entry = {"c": group, "t": topic, "r": "0", "so": _NOWHERE, "q": 0, "rq": 0, "pt": 1, "it": 1}
    acks = [{**entry, "b": "AQ=="}]
    yield Ask(Code.BATCH_ACK_MESSAGE, body=json_body({"brokerName": BROKER_NAME, "acks": acks}))
    asked = {"topic": topic, "consumerGroup": group, "clientId": "x", "strategyName": "AVG"}
    yield Ask(Code.QUERY_ASSIGNMENT, body=json_body({**asked, "messageModel": "CLUSTERING"}))
    mode = {"topic": topic, "consumerGroup": group, "mode": "PULL", "popShareQueueNum": 0}
    yield Ask(Code.SET_MESSAGE_REQUEST_MODE, body=json_body(mode))


def _accounts_2(names: Names) -> Iterator[Ask]:
    """The ten requests about users and policies, in an order in which a super user may."""
    name = names("user")
    user = {"username": name, "password": "a-secret", "userType": "Normal"}
    entry = {"resource": "Topic:x", "actions": ["Pub"], "decision": "Allow", "sourceIps": []}
    policy = {"policyType": "Custom", "entries": [entry]}
    acl = json_body({"subject": f"User:{name}", "policies": [policy]})
    subject = {"subject": f"User:{name}"}
    yield Ask(Code.AUTH_CREATE_USER, {"username": name}, json_body(user))
    yield Ask(Code.AUTH_UPDATE_USER, {"username": name}, json_body({**user, "password": "other"}))
    yield Ask(Code.AUTH_UPDATE_USER, {"username": name}, json_body({**user, "userType": "Super"}),
              "to a super user")  # fmt: skip
    yield Ask(Code.AUTH_GET_USER, {"username": name})
    yield Ask(Code.AUTH_LIST_USER, {"filter": name})
    yield Ask(Code.AUTH_CREATE_ACL, dict(subject), acl)
    yield Ask(Code.AUTH_UPDATE_ACL, dict(subject), acl)
    yield Ask(Code.AUTH_GET_ACL, dict(subject))
    yield Ask(Code.AUTH_LIST_ACL, {"subjectFilter": name, "resourceFilter": "x"})
    yield Ask(Code.AUTH_DELETE_ACL, dict(subject))
    yield Ask(Code.AUTH_DELETE_USER, {"username": name})
    boss = {**user, "username": f"{name}-boss", "userType": "Super"}
    yield Ask(Code.AUTH_CREATE_USER, {"username": f"{name}-boss"}, json_body(boss),
              "a super user")  # fmt: skip
    yield Ask(Code.AUTH_DELETE_USER, {"username": f"{name}-boss"}, name="a super user")


def _accounts_1(names: Names) -> Iterator[Ask]:
    """The five requests about accounts of ACL 1.0."""
    name = names("account")
    account = {"accessKey": name, "secretKey": "a-secret-of-it", "admin": False}
    account |= {"defaultTopicPerm": "DENY", "topicPerms": "t1=PUB,t2=SUB"}
    yield Ask(Code.UPDATE_AND_CREATE_ACL_CONFIG, dict(account))
    yield Ask(Code.GET_BROKER_CLUSTER_ACL_INFO)
    yield Ask(Code.GET_BROKER_CLUSTER_ACL_CONFIG)
    yield Ask(Code.DELETE_ACL_CONFIG, {"accessKey": name})
    yield Ask(Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, {"globalWhiteAddrs": "192.0.2.*"})


Asks = Callable[[Generation, Names], Iterator[Ask]]


def _everything(generation: Generation, names: Names) -> Iterator[Ask]:
    yield from _messaging(OPEN_TOPIC, OPEN_GROUP)
    yield from _administration(OPEN_TOPIC, OPEN_GROUP)
    if generation is Generation.ACL_2:
        yield from _popping(OPEN_TOPIC, OPEN_GROUP)
        yield Ask(Code.POP_ROLLBACK)
        yield from _since_5(OPEN_TOPIC, OPEN_GROUP)
        yield from _accounts_2(names)
    else:
        yield from _accounts_1(names)


def _messages(generation: Generation, topic: str, group: str) -> Iterator[Ask]:
    yield from _messaging(topic, group)
    if generation is Generation.ACL_2:
        yield from _popping(topic, group)


def _on_closed(generation: Generation, _: Names) -> Iterator[Ask]:
    """Messaging with a topic and a group without rights, and with only one of them."""
    for topic, group, words in (
        (CLOSED_TOPIC, CLOSED_GROUP, "another topic and group"),
        (CLOSED_TOPIC, OPEN_GROUP, "another topic"),
        (OPEN_TOPIC, CLOSED_GROUP, "another group"),
    ):
        for ask in _messages(generation, topic, group):
            yield replace(ask, name=f"{ask.name} {words}".strip())


def _on_open(generation: Generation, _: Names) -> Iterator[Ask]:
    return _messages(generation, OPEN_TOPIC, OPEN_GROUP)


_FEW: Final = (
    Code.SEND_MESSAGE_V2,
    Code.PULL_MESSAGE,
    Code.HEART_BEAT,
    Code.UPDATE_AND_CREATE_TOPIC,
    Code.GET_BROKER_RUNTIME_INFO,
)


def _few(generation: Generation, names: Names) -> Iterator[Ask]:
    return (ask for ask in _everything(generation, names) if ask.code in _FEW)


@dataclass(frozen=True)
class Case:
    """Who asks for what.

    Attributes:
      words: for reports.
      signer: None if the requests are not signed.
      only: the generation with such accounts; None: both.
    """

    words: str
    signer: Signer | None
    asks: Asks
    only: Generation | None = None


CASES: Final = (
    Case("no account", None, _everything),
    Case("an unknown account", Signer(_keys("unknown")), _few),
    Case("another secret", Signer(ABLE.keys, Flaw.OTHER_SECRET), _everything),
    Case("a signature cut short", Signer(ABLE.keys, Flaw.CUT_SHORT), _few),
    Case("a signature for another body", Signer(ABLE.keys, Flaw.OTHER_BODY), _few),
    Case("a super user's name, another secret", Signer(SUPER.keys, Flaw.OTHER_SECRET), _few),
    Case("no right at all", Signer(WEAK.keys), _everything),
    Case("the right for messages", Signer(ABLE.keys), _everything),
    Case("the right for other names", Signer(ABLE.keys), _on_closed),
    Case("the right to publish", Signer(PUBLISHER.keys), _on_open),
    Case("the right to subscribe", Signer(SUBSCRIBER.keys), _on_open),
    Case("denied by name", Signer(DENIED.keys), _on_open),
    Case("a right by default, denied by name", Signer(BY_DEFAULT.keys), _on_open),
    Case("a right by default", Signer(BY_DEFAULT.keys), _on_closed),
    Case("a disabled account", Signer(DISABLED.keys), _few, Generation.ACL_2),
    Case("a right from elsewhere", Signer(FROM_ELSEWHERE.keys), _on_open, Generation.ACL_2),
    Case("a right from here", Signer(FROM_HERE.keys), _on_open, Generation.ACL_2),
    Case("a right by prefix", Signer(BY_PREFIX.keys), _on_open, Generation.ACL_2),
    Case("the rights of an operator", Signer(OPERATOR.keys), _everything, Generation.ACL_2),
    Case("a white address, no right signature", Signer(WHITE.keys, Flaw.OTHER_SECRET), _few,
         Generation.ACL_1),
    Case("a super user", Signer(SUPER.keys), _everything),
)  # fmt: skip


def _script(case: Case, number: int, generation: Generation, header: SerializeType) -> Script:
    names = Names(f"acl{number}", header)
    steps = tuple(
        _ask(
            ask.name or "a request",
            ask.code,
            ask.fields,
            ask.body,
            signer=case.signer,
            connection=f"{ask.code.value}",
        )
        for ask in case.asks(generation, names)
        if ask.code <= SHORT_MAX or header is SerializeType.JSON
    )
    return Script(case.words, header, (*_prepared(number), *steps), area=generation)


def _prepared(number: int) -> tuple[Request, ...]:
    """Of the first script: the topics and groups, made by the super user."""
    if number:
        return ()
    by_super = partial(Request, signer=Signer(SUPER.keys))
    topics = (OPEN_TOPIC, CLOSED_TOPIC, f"{OPEN_TOPIC}-gone")
    groups = (OPEN_GROUP, CLOSED_GROUP, f"{OPEN_GROUP}-gone")
    return (
        *(by_super(f"make {topic}", Code.UPDATE_AND_CREATE_TOPIC, topic_fields(topic))
          for topic in topics),
        *(by_super(f"make {group}", Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
                   body=json_body({"groupName": group})) for group in groups),
    )  # fmt: skip


def access_catalogue(generation: Generation) -> list[Script]:
    """Every script for brokers with the accounts of a generation, in the order of execution."""
    scripts = [
        _script(case, number, generation, header)
        for number, case in enumerate(CASES)
        if case.only in (None, generation)
        for header in SerializeType
    ]
    if generation is Generation.ACL_1:
        scripts += [plain_acl(header) for header in SerializeType]
    return scripts
