"""Known differences: bugs of Apache's that we do not repeat, and deliberate differences of ours.

Each entry names a row of docs/quirks.md (or docs/namesrv.md). An entry that covers nothing in a
whole run is an error, so that a bug fixed by Apache, or a difference that is gone, leaves the list.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from ...remoting.request_codes import RequestCode
from .normalise import matches
from .request import CODE_SPANS, version_key
from .tree import MISSING, Difference


@dataclass(frozen=True, kw_only=True)
class KnownBug:
    """An expected difference.

    Attributes:
      requests: as "CODE: name", with the wildcards `*` and `?`.
      paths: the differing values, as in normalisers; all differences of a request must be covered.
      row: the beginning of the row of docs/quirks.md, or of the item of docs/namesrv.md.
      source: an issue or a pull request of apache/rocketmq, a lesson (L7), or Apache's file.
      codes: accepted pairs of our and Apache's response code.
      ours_absent, theirs_absent: covers only values that are absent in ours, or in Apache's.
      theirs: covers only these values of Apache's; none: all.
      since, before: the range of Apache's versions with this difference.
    """

    requests: tuple[str, ...]
    paths: tuple[str, ...]
    row: str
    source: str
    codes: tuple[tuple[int, int], ...] = ()
    ours_absent: bool = False
    theirs: tuple[object, ...] = ()
    theirs_absent: bool = False
    since: str = "0"
    before: str = "99"

    def is_of(self, version: str) -> bool:
        """Whether a version of Apache's has this difference."""
        return version_key(self.since) <= version_key(version) < version_key(self.before)

    def names(self, request: str) -> bool:
        """Whether it applies to this request, "CODE: name"."""
        return any(fnmatchcase(request, pattern) for pattern in self.requests)

    def covers(self, difference: Difference) -> bool:
        if difference.path == ("code",):
            return (difference.first, difference.second) in self.codes
        if self.ours_absent and difference.first is not MISSING:
            return False
        if self.theirs_absent and difference.second is not MISSING:
            return False
        if self.theirs and difference.second not in self.theirs:
            return False
        return any(matches(difference.path, tuple(path.split("."))) for path in self.paths)


def explained(
    request: str, found: Sequence[Difference], bugs: Sequence[KnownBug]
) -> list[KnownBug] | None:
    """The entries that cover all differences of a request; None: one is not covered."""
    about = [bug for bug in bugs if bug.names(request)]
    used: list[KnownBug] = []
    for difference in found:
        covering = next((bug for bug in about if bug.covers(difference)), None)
        if covering is None:
            return None
        if covering not in used:
            used.append(covering)
    return used


_REMARK = ("remark",)
_ANSWER = ("remark", "fields", "fields.**", "body", "body.**")
_SENDS = ("10: *", "310: *", "320: *", "324: *", "325: *", "370: *")

_ON_THE_NAME_SERVER = (
    KnownBug(
        requests=(
            "318: a key that nobody knows",
            "318: a key that must not be changed",
            "318: a value that is no number",
            "318: a right key and a wrong one",
        ),
        paths=_REMARK,
        codes=((1, 0), (16, 0)),
        row="PUT_KV_CONFIG and UPDATE_NAMESRV_CONFIG answer SYSTEM_ERROR",
        source="namesrv/processor/DefaultRequestProcessor.java updateConfig",
    ),
    KnownBug(
        requests=("319: *",),
        paths=("body.*",),
        ours_absent=True,
        row="GET_NAMESRV_CONFIG tells the keys that trocket supports",
        source="namesrv/processor/DefaultRequestProcessor.java getConfig",
    ),
    KnownBug(
        requests=("319: *",),
        paths=("body.*",),
        theirs_absent=True,
        row="GET_NAMESRV_CONFIG tells the keys that trocket supports",
        source="namesrv/processor/DefaultRequestProcessor.java getConfig",
    ),
)

_CONFIGURATION = (
    KnownBug(
        requests=(
            "25: a key that * does not have",
            "25: a key that has no effect",
            "25: a key that is read at the start",
            "25: a value *",
            "25: a right key and a wrong one",
        ),
        paths=_REMARK,
        codes=((1, 0), (16, 0)),
        row="UPDATE_BROKER_CONFIG and UPDATE_NAMESRV_CONFIG refuse a key",
        source="remoting/Configuration.java mergeIfExist, MixAll.java properties2Object",
    ),
    KnownBug(
        requests=("25: a path *",),
        paths=_REMARK,
        codes=((16, 0), (16, 16)),
        row="no request may change a path",
        source="AdminBrokerProcessor.java initConfigBlackList",
    ),
    KnownBug(
        requests=("26: *",),
        paths=("body.*",),
        ours_absent=True,
        row="GET_BROKER_CONFIG tells the keys that trocket supports",
        source="broker/processor/AdminBrokerProcessor.java getBrokerConfig",
    ),
    KnownBug(
        requests=("26: *",),
        paths=("body.*",),
        theirs_absent=True,
        row="GET_BROKER_CONFIG tells the keys that trocket supports",
        source="broker/processor/AdminBrokerProcessor.java getBrokerConfig",
    ),
)

_SENDING = (
    KnownBug(
        requests=("310: *", "10: *"),
        paths=("fields.transactionId",),
        ours_absent=True,
        row="the answer to a plain send has no `transactionId`",
        source="broker/processor/SendMessageProcessor.java",
        since="5.0",
    ),
    KnownBug(
        requests=_SENDS,
        paths=("fields.MSG_REGION", "fields.TRACE_ON"),
        ours_absent=True,
        row="the answer to a send that is refused has no region",
        source="broker/processor/SendMessageProcessor.java preSend",
    ),
    KnownBug(
        requests=("310: an empty body",),
        paths=_ANSWER,
        codes=((0, 1),),
        row="a message may be empty",
        source="broker/processor/AbstractSendMessageProcessor.java buildMsgContext",
        since="5.0",
    ),
    KnownBug(
        requests=("320: cut short", "320: too large", "320: nothing"),
        paths=_ANSWER,
        codes=((13, 1),),
        row="a batch that is too large or cannot be read is refused with code 13",
        source="store/MessageExtEncoder.java encode(MessageExtBatch)",
    ),
    KnownBug(
        requests=("320: delayed messages",),
        paths=_ANSWER,
        codes=((3, 0),),
        row="delayed and timed messages in a batch are refused with code 3",
        source="broker/processor/SendMessageProcessor.java sendBatchMessage",
    ),
    KnownBug(
        requests=("11: a batch", "11: from a logic queue"),
        paths=("body.*.store_size", "body.*.properties.*"),
        row="messages of a batch have region, trace switch and cluster as single ones have",
        source="store/MessageExtEncoder.java encode(MessageExtBatch)",
    ),
)

_PULLING = (
    KnownBug(
        requests=("11: few bytes",),
        paths=_ANSWER,
        row="`maxMsgBytes` of a pull is obeyed",
        source="broker/processor/PullMessageProcessor.java",
        since="5.0",
    ),
    KnownBug(
        requests=("11: a wrong expression",),
        paths=_ANSWER,
        codes=((23, 0),),
        row="a pull with a wrong expression is refused with code 23",
        source="broker/processor/PullMessageProcessor.java",
    ),
    KnownBug(
        requests=("46: a wrong expression", "46: a type that nobody knows"),
        paths=_REMARK,
        row="46 answers with the error in an expression and its place",
        source="filter/parser/SelectorParser.java",
    ),
    KnownBug(
        requests=("12: a negative count",),
        paths=_ANSWER,
        codes=((22, 1),),
        row="12 with a negative count finds nothing, as with 0",
        source="store/DefaultMessageStore.java queryMessage",
    ),
    KnownBug(
        requests=("33: inside a message",),
        paths=_ANSWER,
        row="12 or 33 that meets a damaged message is SYSTEM_ERROR",
        source="broker/processor/QueryMessageProcessor.java viewMessageById",
    ),
)

_STATIC_TOPICS = (
    KnownBug(
        requests=("351: of a static topic", "21: with a mapping"),
        paths=(
            "body.mappingDetail.hostedQueues.*",
            "body.topicQueueMappingDetailMap.*.hostedQueues.*",
        ),
        row="the queue ids in the mappings of static topics are quoted",
        source="broker/processor/AdminBrokerProcessor.java getTopicConfig",
        since="5.0",
    ),
    KnownBug(
        requests=("11: past the end of a logic queue",),
        paths=_ANSWER,
        codes=((21, 19),),
        row="a pull past the end of a logic queue is corrected",
        source="broker/processor/PullMessageProcessor.java rewriteResponseForStaticTopic",
        since="5.0",
    ),
    KnownBug(
        requests=("513: a physical queue that is not there", "513: no body"),
        paths=_ANSWER,
        codes=((1, 0),),
        row="a mapping (513) that contradicts the broker, its topic or an earlier one is refused",
        source="broker/topic/TopicQueueMappingManager.java updateTopicQueueMapping",
        since="5.0",
    ),
)

_ADMINISTERING = (
    KnownBug(
        requests=("15: a queue that is not there", "15: a negative offset"),
        paths=_REMARK,
        row="an offset that its queue cannot have",
        source="broker/processor/ConsumerManageProcessor.java updateConsumerOffset",
    ),
    KnownBug(
        requests=("315: stored messages of a queue",),
        paths=_ANSWER,
        codes=((0, 1),),
        row="the counters of 315 are found by looking at the queues",
        source="broker/processor/SendMessageProcessor.java handlePutMessageResult",
    ),
    KnownBug(
        requests=("11: what was parked",),
        paths=("body.*.store_size", "body.*.properties.WAIT"),
        row="a half message that is written again says `WAIT` false",
        source="broker/transaction/queue/TransactionalMessageBridge.java renewHalfMessageInner",
    ),
    KnownBug(
        requests=("37: a second commit", "37: a commit after a rollback"),
        paths=_ANSWER,
        codes=((1, 0),),
        row="a transaction ends once; a further end is answered SYSTEM_ERROR",
        source="lesson L19",
    ),
)

_OF_POP = ("20005[0-5]: *",)
_ZEROS = tuple(
    f"fields.{name}"
    for name in (
        "popTime",
        "invisibleTime",
        "reviveQid",
        "restNum",
        "hasMsg",
        "pollingFull",
        "pollingNum",
    )
)

_POPPING = (
    KnownBug(
        requests=_OF_POP,
        paths=_ZEROS,
        ours_absent=True,
        theirs=("0", "false", "<revive queue>"),
        row="a request of pop that is refused is answered without a header",
        source="broker/processor/PopMessageProcessor.java processRequest",
        since="5.0",
    ),
    KnownBug(
        requests=("26: *",),
        paths=("body.enablePopBufferMerge",),
        row="enablePopBufferMerge is true",
        source="common/BrokerConfig.java",
        since="5.0",
    ),
    KnownBug(
        requests=("20005[02]: less than no messages",),
        paths=_ANSWER,
        codes=((210, 1), (19, 1)),
        row="a pop or peek of less than one message finds nothing",
        source="broker/processor/PopMessageProcessor.java processRequest",
        since="5.0",
    ),
    KnownBug(
        requests=("200053: for four days",),
        paths=_ANSWER,
        codes=((29, 1),),
        row="the change of an invisible time to longer than timer messages may wait",
        source="broker/processor/ChangeInvisibleTimeProcessor.java",
        since="5.0",
    ),
    KnownBug(
        requests=(
            "200050: invisible for less than no time",
            "200050: invisible for four days",
        ),
        paths=("fields.invisibleTime",),
        row="an invisible time that the broker cannot keep",
        source="broker/processor/PopMessageProcessor.java appendCheckPoint",
        since="5.0",
    ),
    KnownBug(
        requests=("200053: for less than no time",),
        paths=_ANSWER,
        codes=((13, 0),),
        row="a change of the invisible time (200053) by a receipt that is over",
        source="broker/processor/ChangeInvisibleTimeProcessor.java",
        since="5.0",
    ),
    KnownBug(
        requests=("20005[13]: a receipt *",),
        paths=_ANSWER,
        codes=((1, 0),),
        row="a receipt needs all eight fields",
        source="remoting/protocol/header/ExtraInfoUtil.java",
        since="5.0",
    ),
    KnownBug(
        requests=("200151: no bits", "200151: an unknown form"),
        paths=_ANSWER,
        codes=((0, 1),),
        row="an entry of a batch acknowledgement (200151) without bits",
        source="broker/processor/AckMessageProcessor.java appendAck",
        since="5.0",
    ),
    KnownBug(
        requests=("401: an unknown mode",),
        paths=_ANSWER,
        codes=((1, 0),),
        row="401 with a mode that is neither PULL nor POP: code 1",
        source="broker/processor/QueryAssignmentProcessor.java setMessageRequestMode",
        since="5.0",
    ),
    KnownBug(
        requests=("200070: *", "200071: *", "200074: *", "20007[5-9]: *"),
        paths=_ANSWER,
        codes=((3, 0), (3, 17), (3, 29), (3, 604)),
        row="the codes of lite topics (200070 to 200079) are answered with code 3",
        source="broker/processor/LiteManagerProcessor.java",
        since="5.5",
    ),
)

_OF_FILTER_SERVERS = tuple(
    KnownBug(
        requests=("301: no address",),
        paths=_ANSWER,
        codes=((1, 0),),
        row="the address of a filter server (301) must be `host:port`",
        source="broker/processor/AdminBrokerProcessor.java registerFilterServer",
        since=since,
        before=before,
    )
    for since, before in CODE_SPANS[RequestCode.REGISTER_FILTER_SERVER]
)

_NEWER = "answers are those of 5.5.0, whatever the version of the client"

_ACCOUNTS = (
    KnownBug(
        requests=(
            "300[1-5]: a user",
            "3002: a password",
            "3005: *",
            "300[67]: a policy",
            "3008: all of a user",
            "3008: an entry",
            "3009: a user's",
            "3010: *",
        ),
        paths=_REMARK,
        row="without accounts, 3001 to 3010 are refused with the reason",
        source="broker/processor/AdminBrokerProcessor.java handleAuthException",
        since="5.3.0",
    ),
    KnownBug(
        requests=("3006: a subject that is no user",),
        paths=_REMARK,
        row="an ACL's subject that is no user is refused with its text",
        source="broker/processor/AdminBrokerProcessor.java handleAuthException",
        since="5.3.0",
    ),
    KnownBug(
        requests=("3006: an unknown action",),
        paths=_REMARK,
        row="an unknown type, status, action or policy type",
        source="broker/auth/converter/AclConverter.java",
        since="5.3.0",
    ),
)

_BEFORE_5 = (
    KnownBug(
        requests=("*",),
        paths=("fields.**", "body.**"),
        theirs_absent=True,
        row=_NEWER,
        source="members that came with 5.0",
        before="5.0",
    ),
    KnownBug(
        requests=("11: *", "12: *", "33: *", "39: *", "309: *"),
        paths=("body.*.store_size",),
        row=_NEWER,
        source="broker/processor/AbstractSendMessageProcessor.java buildMsgContext",
        before="5.0",
    ),
    KnownBug(
        requests=(
            "17: *",
            "215: *",
            "10: an illegal*",
            "310: *",
            "320: an illegal*",
            "11: a queue that*",
            "200: no name",
        ),
        paths=_REMARK,
        codes=((29, 1),),
        row=_NEWER,
        source="common/topic/TopicValidator.java",
        before="5.0",
    ),
    KnownBug(
        requests=(
            "200: an illegal name",
            "200: a name too long",
            "200: an attribute*",
            "14: *",
            "15: *",
            "11: an illegal group",
            "320: a retry topic",
            "36: an illegal group",
        ),
        paths=_ANSWER,
        codes=((29, 0), (1, 0), (22, 0), (17, 0), (26, 0), (13, 0)),
        row=_NEWER,
        source="checks that came with 5.0",
        before="5.0",
    ),
    KnownBug(
        requests=("200: no body", "46: no body"),
        paths=_ANSWER,
        codes=((0, 1),),
        row=_NEWER,
        source="remoting/protocol/RemotingSerializable.java decode",
        before="5.0",
    ),
    KnownBug(
        requests=("222: a topic that nobody knows",),
        paths=_REMARK,
        codes=((17, 1),),
        row=_NEWER,
        source="broker/client/net/Broker2Client.java resetOffset",
        before="5.0",
    ),
    KnownBug(
        requests=("11: what was committed",),
        paths=("body.*.properties.*",),
        ours_absent=True,
        row=_NEWER,
        source="broker/processor/EndTransactionProcessor.java endMessageTransaction",
        before="5.0",
    ),
    KnownBug(
        requests=("29: the end",),
        paths=("fields.offset",),
        row="an offset by time is that of 5.x for stores of 4.9.7, too",
        source="store/ConsumeQueue.java getOffsetInQueueByTime",
        before="5.0",
    ),
    KnownBug(
        requests=("21: *",),
        paths=("body.topicConfigTable.*.order",),
        row=_NEWER,
        source="broker/processor/AdminBrokerProcessor.java updateAndCreateTopic",
        before="5.0",
    ),
    KnownBug(
        requests=("201: *",),
        paths=("body.subscriptionGroupTable.*",),
        ours_absent=True,
        row=_NEWER,
        source="a group with an unknown attribute is created",
        before="5.0",
    ),
)

KNOWN_BUGS: tuple[KnownBug, ...] = (
    KnownBug(
        requests=(
            "*: without *",
            "200050: a count that is no number",
            "200050: a count of 33 bits",
            "200050: a time of 65 bits",
            "200054: a time that is no number",
        ),
        paths=_ANSWER,
        codes=tuple((1, code) for code in (0, 17, 19, 22, 26, 29, 210, 604)),
        row="a header field that is missing or not a number is refused at once",
        source="remoting/protocol/RemotingCommand.java decodeCommandCustomHeader",
    ),
    *_ON_THE_NAME_SERVER,
    *_CONFIGURATION,
    *_SENDING,
    *_PULLING,
    *_STATIC_TOPICS,
    *_ADMINISTERING,
    *_POPPING,
    *_OF_FILTER_SERVERS,
    *_ACCOUNTS,
    *_BEFORE_5,
)
