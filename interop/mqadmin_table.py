"""mqadmin's commands as data: the arguments of each, and the request codes it needs.

Of the 96 commands of 5.5.0, those that concern a plain single broker, some with several sets of
options; of the 57 of 4.9.7 all but the five for its access control lists, which
`mqadmin_accounts` runs with accounts. `NOT_RUN` says why the others are left out.

Source: the list that mqadmin 5.5.0 prints without arguments; RocketMQ 5.3.3 and 4.9.7
tools/command/MQAdminStartup.java and the commands' options; the requests of each were traced
through DefaultMQAdminExtImpl and MQClientAPIImpl.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

OLD = "4"
NEW = "5"


@dataclass(frozen=True)
class Command:
    """One call of one command.

    Attributes:
      line: the arguments, beginning with the command's name; placeholders in braces (see
        `mqadmin.Names`).
      case: what this call of the command is about, in one word, if there are several.
      codes: the requests it needs.
      since: the first major version whose mqadmin has it.
      old_line: the arguments for mqadmin 4.x, if they differ.
      fails_when_old: mqadmin 4.x fails with the answers of Apache's 5.x.
      is_refused: it fails with Apache's broker too, as that is configured here and with a client
        that does not answer the broker's requests.
      numbers: whether numbers are compared; not if they are rates, times or sizes on disk.
      own_topics: whether lines about internal topics and groups are ignored; brokers differ in
        which they have.
      enough: for a command that never ends, a pattern that ends it when its output matches.
      other_keys: the place in the docs that says why ours prints other `key = value` lines, or
        succeeds where mqadmin 4.x fails with Apache's 5.x.
      refused_by_ours: the place in the docs that says why our servers refuse what Apache's do.
      refusal: if not "", Apache's broker takes this and ours refuses it: a part of our text, which
        mqadmin must print. `refused_by_ours` says why.
      only: a pattern; if given, only lines that match are compared.
      keeps_client: it needs a new JVM, because it keeps the client that its first call shut down.
    """

    line: str
    codes: tuple[int, ...]
    case: str = ""
    since: str = OLD
    old_line: str = ""
    fails_when_old: bool = False
    is_refused: bool = False
    numbers: bool = True
    own_topics: bool = False
    enough: str = ""
    other_keys: str = ""
    refused_by_ours: str = ""
    refusal: str = ""
    only: str = ""
    keeps_client: bool = False

    @property
    def name(self) -> str:
        return self.line.partition(" ")[0]

    @property
    def feature(self) -> str:
        """The name of its cell: the command's, with its case."""
        return f"{self.name}-{self.case}" if self.case else self.name

    def line_of(self, version: str) -> str:
        """The arguments for mqadmin of this version."""
        return self.old_line if self.old_line and version < NEW else self.line

    def fails_in(self, version: str) -> bool:
        """Whether mqadmin of this version fails with Apache's 5.x as configured here."""
        return self.is_refused or (self.fails_when_old and version < NEW)


OF_26 = "docs/quirks.md: GET_BROKER_CONFIG tells the keys that trocket supports"
OF_28 = "docs/quirks.md: 28 has `brokerVersion` and `getTransferedTps`"

QUERIES = (
    Command("clusterList", (28, 106), fails_when_old=True, numbers=False, other_keys=OF_28),
    Command("clusterList -m", (28, 106), case="totals", numbers=False),
    Command("topicList", (206,), own_topics=True),
    Command("topicList -c", (105, 106, 206, 300), case="groups", own_topics=True),
    Command("topicRoute -t {topic}", (105,)),
    Command("topicRoute -t {topic}Unknown", (105,), case="unknown", is_refused=True),
    Command("topicClusterList -t {topic}", (105, 106)),
    Command("topicStatus -t {topic}", (105, 202)),
    Command("topicStatus -t {topic}Unknown", (105, 202), case="unknown", is_refused=True),
    Command("allocateMQ -t {topic} -i 127.0.0.1,127.0.0.2", (105,)),
    Command(
        "brokerStatus -b {broker}",
        (28,),
        numbers=False,
        other_keys=OF_28,
    ),
    Command(
        "brokerStatus -c {cluster}",
        (28, 106),
        case="cluster",
        numbers=False,
        other_keys=OF_28,
    ),
    Command("brokerConsumeStats -b {broker}", (317,), own_topics=True),
    Command(
        "brokerConsumeStats -b {broker} -l 1",
        (317,),
        case="behind",
        own_topics=True,
        keeps_client=True,
    ),
    Command(
        "getBrokerConfig -b {broker}",
        (26,),
        numbers=False,
        other_keys=OF_26,
    ),
    Command(
        "getNamesrvConfig",
        (319,),
        numbers=False,
        other_keys="docs/namesrv.md, Differences: GET_NAMESRV_CONFIG tells the keys that trocket "
        "supports, not all of Apache's",
    ),
    Command("getConsumerConfig -g {group}", (106, 201)),
    Command("consumerProgress -g {group}", (105, 203, 208)),
    Command("consumerProgress", (105, 203, 206, 208), case="all", own_topics=True),
    Command(
        "consumerProgress -g {traced} -s true", (105, 203, 208, 307), case="clients", numbers=False
    ),
    Command("consumerProgress -g {group}Unknown", (105, 208), case="unknown", is_refused=True),
    Command("consumerProgress -g {popped}", (105, 203, 208), case="popped", since=NEW),
    Command(
        "consumerConnection -g {popped}", (105, 203), case="popped", since=NEW, is_refused=True
    ),
    Command("consumerConnection -g {online}", (105, 203)),
    Command("consumerConnection -g {traced}", (105, 203), case="java"),
    Command("consumerConnection -g {group}", (105, 203), case="offline", is_refused=True),
    Command("consumerStatus -g {traced}", (105, 203, 307)),
    Command(
        "consumerStatus -g {traced} -i {traced_client}", (105, 203, 307), case="one", numbers=False
    ),
    Command(
        "consumerStatus -g {traced} -i {traced_client} -s",
        (105, 203, 307),
        case="stacks",
        numbers=False,
        only="^#",
    ),
    Command(
        "consumerStatus -g {online}",
        (105, 203, 307),
        case="silent",
        is_refused=True,
        numbers=False,
    ),
    # The silent client takes 5 s, after which a sample of the rates has the load: see statsAll.
    Command("producerConnection -g {producer} -t {topic}", (105, 204)),
    Command("producerConnection -g {traced}_producer -t {traced}", (105, 204), case="java"),
    Command("producer -b {broker}", (328,)),
    Command("statsAll -t {topic}", (105, 206, 208, 300, 315), numbers=False),
    Command("statsAll", (105, 206, 208, 300, 315), case="all", numbers=False, own_topics=True),
    # Apache's brokers forget the messages of a new topic after a minute, until the next hour.
    Command(
        "statsAll -a",
        (105, 206, 208, 300, 315),
        case="active",
        numbers=False,
        only=r"^(#|mqadmin\s)",
    ),
    Command("haStatus -b {broker}", (907,), since=NEW, numbers=False),
)

MESSAGES = (
    Command(
        "queryMsgById -t {topic} -i {offset_id}",
        (33, 203, 208, 300),
        old_line="queryMsgById -i {offset_id}",
    ),
    Command(
        "queryMsgById -t {topic} -i {offset_id} -g {traced} -d {traced_client}",
        (33, 307, 309),
        case="consumed",
        old_line="queryMsgById -i {offset_id} -g {traced} -d {traced_client}",
    ),
    Command(
        "queryMsgById -t {resent} -i {resent_id} -s true",
        (33, 105, 310),
        case="resent",
        old_line="queryMsgById -i {resent_id} -s true",
    ),
    Command("queryMsgByKey -t {topic} -k key3", (12, 105)),
    Command(
        "queryMsgByKey -t {topic} -k key3 -b 0 -e 1",
        (12, 105),
        case="none",
        since=NEW,
        is_refused=True,
    ),
    Command("queryMsgByUniqueKey -t {topic} -i {unique_id}", (12, 33, 105, 203, 208, 300)),
    Command(
        "queryMsgByUniqueKey -t {traced} -i {traced_id}",
        (12, 33, 105, 203, 208, 300),
        case="consumed",
        keeps_client=True,
    ),
    Command(
        "queryMsgByUniqueKey -t {traced} -i {traced_id} -g {traced} -d {traced_client}",
        (12, 33, 105, 307, 309),
        case="again",
        keeps_client=True,
    ),
    Command("queryMsgByOffset -t {topic} -b {broker_name} -i 0 -o 1", (11, 105, 203, 208, 300)),
    Command("queryMsgTraceById -t RMQ_SYS_TRACE_TOPIC -i {traced_id}", (12, 105), numbers=False),
    Command(
        "queryMsgTraceById -t RMQ_SYS_TRACE_TOPIC -i {unique_id}",
        (12, 105),
        case="none",
        is_refused=True,
    ),
    Command("printMsg -t {topic} -d true", (11, 30, 31, 105)),
    Command("printMsg -t {topic} -s Tag1 -d true", (11, 30, 31, 105), case="tag"),
    Command("printMsg -t {topic} -b 0 -e 9999999999999", (11, 29, 30, 31, 105), case="times"),
    Command("printMsgByQueue -t {topic} -a {broker_name} -i 0 -p true -d true", (11, 30, 31)),
    Command("consumeMessage -t {topic} -b {broker_name} -i 0 -o 0 -c 2", (11, 30, 31)),
    Command("queryCq -b {broker} -t {topic} -q 0 -i 0 -c 3", (321,)),
    Command(
        "queryCq -b {broker} -t {traced} -q 0 -i 0 -c 3 -g {traced}",
        (321,),
        case="group",
        numbers=False,
    ),
    Command("sendMessage -t {topic} -p sent -k adm -c TagS -b {broker_name} -i 0", (105, 310)),
    Command("checkMsgSendRT -t {topic} -a 2 -s 16", (105, 310), numbers=False),
    Command("sendMsgStatus -b {broker_name} -s 16 -c 1", (105, 310), numbers=False),
    Command(
        "clusterRT -a 2 -s 16 -i 600",
        (106, 310),
        numbers=False,
        # A whole line: mqadmin prints it in parts. Cluster, broker, time, successes, failures.
        enough=r"(?m)^\w+ +\S+ +[\d.]+ +\d+ +\d+ *\R",
    ),
)

CHANGES = (
    Command("updateTopic -b {broker} -t {topic}New -r 3 -w 3 -p 6", (17,)),
    Command("topicStatus -t {topic}New", (105, 202), case="new"),
    Command("updateTopic -c {cluster} -t {topic}New -r 3 -w 3 -p 6", (17, 106), case="cluster"),
    Command("updateTopicList -b {broker} -f {topics_file}", (18,), since=NEW),
    Command(
        "updateTopic -b {broker} -t {topic}Fifo -a +message.type=FIFO",
        (17,),
        case="fifo",
        since=NEW,
    ),
    Command("updateTopicPerm -b {broker} -t {topic}New -p 4", (17, 105)),
    Command("updateOrderConf -t {topic}New -m put -v {broker_name}:3", (100, 101)),
    Command(
        "updateTopic -b {broker} -t {topic}New -r 2 -w 2 -o true", (17, 100, 101), case="ordered"
    ),
    Command("updateOrderConf -t {topic}New -m get", (101,), case="get"),
    Command("updateOrderConf -t {topic}New -m delete", (102,), case="delete"),
    Command("updateOrderConf -t {topic}New -m get", (101,), case="none", is_refused=True),
    Command("updateSubGroup -b {broker} -g {group}New -q 2 -r 5", (200,)),
    Command("updateSubGroupList -b {broker} -f {groups_file}", (225,), since=NEW),
    Command("setConsumeMode -b {broker} -t {topic} -g {group} -m POP -q 2", (401,), since=NEW),
    Command(
        "setConsumeMode -b {broker} -t {topic}Unknown -g {group} -m POP -q 0",
        (401,),
        case="unknown",
        since=NEW,
        is_refused=True,
    ),
    Command(
        "setConsumeMode -c {cluster} -t {topic} -g {group} -m PULL -q 0",
        (106, 401),
        case="cluster",
        since=NEW,
    ),
    Command("resetOffsetByTime -g {group} -t {topic} -s now", (105, 208, 222)),
    Command("resetOffsetByTime -g {group} -t {topic} -s 0", (105, 208, 222), case="first"),
    Command("consumerProgress -g {group}", (105, 203, 208), case="reset"),
    Command(
        "resetOffsetByTime -g {group} -t {topic} -s 0 -b {broker} -q 1 -o 3",
        (222,),
        case="queue",
        since=NEW,
    ),
    Command("consumerProgress -g {group} -t {topic}", (105, 203, 208), case="moved", since=NEW),
    Command("resetOffsetByTime -g {traced} -t {traced} -s 0", (105, 208, 222), case="online"),
    Command(
        "resetOffsetByTime -g {group}Unknown -t {topic} -s 0",
        (105, 208, 222),
        case="unknown",
        is_refused=True,
    ),
    Command("skipAccumulatedMessage -g {group} -t {topic}", (105, 208, 222)),
    Command("skipAccumulatedMessage -g {traced} -t {traced}", (105, 208, 222), case="online"),
    Command("cloneGroupOffset -s {group} -d {group}New -t {topic} -o true", (15, 105, 208)),
    Command(
        "cloneGroupOffset -s {group} -d {group}Unknown -t {topic} -o true",
        (15, 105, 208),
        case="unknown",
        is_refused=True,
    ),
    Command("updateKvConfig -s {topic} -k name -v value", (100,)),
    Command("deleteKvConfig -s {topic} -k name", (102,)),
    Command("deleteKvConfig -s {topic} -k name", (102,), case="none"),
    Command("updateBrokerConfig -b {broker} -k transactionCheckMax -v 14", (25,)),
    Command("updateNamesrvConfig -k scanNotActiveBrokerInterval -v 5001", (318,)),
    Command("wipeWritePerm -b {broker_name}", (205,), numbers=False),
    Command("topicRoute -t {topic}", (105,), case="wiped"),
    Command("addWritePerm -b {broker_name}", (327,), numbers=False),
    Command("topicRoute -t {topic}", (105,), case="writable"),
    Command("cleanExpiredCQ -b {broker}", (306,)),
    Command("cleanUnusedTopic -b {broker}", (316,)),
    Command("deleteExpiredCommitLog -b {broker}", (329,)),
    # Numbers that make no sense: Apache's broker takes them, and so does ours.
    Command("updateTopic -b {broker} -t {topic}Odd -r 0 -w 2 -p 6", (17,), case="unread"),
    Command(
        "updateTopic -b {broker} -t {topic}Odd -r 2 -w 2 -p 15",
        (17,),
        case="permission",
        since=NEW,  # which refuses it itself
        is_refused=True,
    ),
    Command("updateSubGroup -b {broker} -g {group}Odd -q 100000 -r -5", (200,), case="numbers"),
    Command(
        "resetOffsetByTime -g {group} -t {topic} -s 0 -b {broker} -q 9 -o 1",
        (222,),
        case="no-queue",
        since=NEW,
    ),
    Command(
        "resetOffsetByTime -g {group} -t {topic} -s 0 -b {broker} -q 0 -o 1000000",
        (222,),
        case="past",
        since=NEW,
        is_refused=True,
    ),
    # What ours refuses: mqadmin shows why.
    Command(
        "updateBrokerConfig -b {broker} -k noSuchKey -v 1",
        (25,),
        case="unknown",
        refusal="noSuchKey",
        refused_by_ours="docs/quirks.md: UPDATE_BROKER_CONFIG and UPDATE_NAMESRV_CONFIG refuse",
    ),
    Command(
        "updateTopic -b {broker} -t {topic}Compact -a +cleanup.policy=COMPACTION",
        (17,),
        case="compaction",
        since=NEW,
        refusal="cleanup.policy=COMPACTION is not supported by this broker",
        refused_by_ours="docs/quirks.md: the topic attribute `cleanup.policy=COMPACTION`",
    ),
    # What other versions of mqadmin list later must not depend on who took it.
    Command("deleteTopic -c {cluster} -t {topic}Compact", (106, 215, 216), case="compaction"),
)

OF_ACCOUNTS = "SubCommandException"
"""How it fails is compared; our text says what is missing (docs/quirks.md)."""

_NO_ACCOUNTS = partial(Command, since=NEW, is_refused=True, only=OF_ACCOUNTS)

ACCOUNTS = (
    _NO_ACCOUNTS("createUser -b {broker} -u alice -p secret -t Normal", (3001,)),
    _NO_ACCOUNTS("updateUser -b {broker} -u alice -p other", (3002,)),
    _NO_ACCOUNTS("getUser -b {broker} -u alice", (3004,)),
    _NO_ACCOUNTS("listUser -b {broker}", (3005,)),
    _NO_ACCOUNTS(
        "createAcl -b {broker} -s User:alice -r Topic:{topic} -a Pub,Sub -d Allow -i 127.0.0.1",
        (3006,),
    ),
    _NO_ACCOUNTS(
        "updateAcl -b {broker} -s User:alice -r Topic:{topic} -a Pub -d Allow -i 127.0.0.1",
        (3007,),
    ),
    _NO_ACCOUNTS("getAcl -b {broker} -s User:alice", (3009,)),
    _NO_ACCOUNTS("listAcl -b {broker}", (3010,)),
    _NO_ACCOUNTS("deleteAcl -b {broker} -s User:alice", (3008,)),
    _NO_ACCOUNTS("deleteUser -b {broker} -u alice", (3003,)),
    _NO_ACCOUNTS("copyUser -f {broker} -t {broker}", (3005,)),
    _NO_ACCOUNTS("copyAcl -f {broker} -t {broker}", (3010,)),
)
"""Refused, because these brokers have no accounts."""

EXPORTS = (
    Command("exportMetadata -c {cluster} -f {folder}", (21, 106, 201, 305)),
    Command(
        "exportConfigs -c {cluster} -f {folder}", (26, 106), fails_when_old=True, other_keys=OF_26
    ),
    Command(
        "exportMetrics -c {cluster} -f {folder}",
        (26, 28, 106, 201),
        fails_when_old=True,
        other_keys=OF_28,
    ),
    Command("exportPopRecord -b {broker} -d true", (200056,), since=NEW),
)

OF_REFUSED = "docs/operations.md: Commands of mqadmin that are refused"

# After the exports: Apache's broker then writes a JSON that the exports of its mqadmin cannot read.
STATIC_TOPICS = (
    Command(
        "updateStaticTopic -t {topic}Static -qn 2 -b {broker_name}", (106, 351, 513), since=NEW
    ),
    Command("remappingStaticTopic -t {topic}Static -b {broker_name}", (106, 351, 513), since=NEW),
)

ROCKSDB = (
    Command("checkRocksdbCqWriteProgress -c {cluster} -t {topic}", (106, 354), since=NEW),
    Command("rocksDBConfigToJson -c {cluster} -t topics", (106, 355), since=NEW),
)

REFUSED = tuple(
    Command(line, (code,), since=NEW, refused_by_ours=OF_REFUSED, is_refused=is_refused)
    for line, code, is_refused in (
        ("resetMasterFlushOffset -b {broker} -o 0", 908, False),
        ("getBrokerEpoch -b {broker_name}", 1007, True),
        ("updateColdDataFlowCtrGroupConfig -b {broker} -g {group} -v 1000000", 2001, False),
        ("getColdDataFlowCtrInfo -b {broker}", 2003, False),
        ("removeColdDataFlowCtrGroupConfig -b {broker} -g {group}", 2002, False),
        ("setCommitLogReadAheadMode -b {broker} -m 0", 2004, False),
        ("switchTimerEngine -b {broker} -e F", 5001, False),
        ("getBrokerLiteInfo -b {broker}", 200074, False),
        ("getParentTopicInfo -p {topic}", 200075, False),
        ("getLiteTopicInfo -p {topic} -l lite", 200076, False),
        ("getLiteClientInfo -p {topic} -g {group} -c client", 200077, False),
        ("getLiteGroupInfo -p {topic} -g {group}", 200078, False),
        ("triggerLiteDispatch -p {topic} -g {group}", 200079, False),
    )
)
"""What our servers refuse with code 3, and Apache's plain broker does or refuses otherwise."""

LAST = (
    # With the offsets: without that, Apache's 5.5.0 creates the group again (docs/quirks.md).
    Command("deleteSubGroup -c {cluster} -g {group}New -r true", (106, 207, 215, 216)),
    Command("deleteTopic -c {cluster} -t {topic}New", (106, 215, 216)),
    Command("deleteTopic -c {cluster} -t {topic}New", (106, 215, 216), case="unknown"),
    Command("topicRoute -t {topic}New", (105,), case="deleted", is_refused=True),
    # Last: its threads keep watching after it returns.
    Command("startMonitoring", (203, 206, 208)),
)

COMMANDS = (
    *QUERIES,
    *MESSAGES,
    *CHANGES,
    *ACCOUNTS,
    *EXPORTS,
    *STATIC_TOPICS,
    *ROCKSDB,
    *REFUSED,
    *LAST,
)
"""In execution order: later commands see the changes of earlier ones."""

NOT_RUN = {
    "addBroker": "a broker container",
    "removeBroker": "a broker container",
    "electMaster": "a controller",
    "getControllerConfig": "a controller",
    "getControllerMetaData": "a controller",
    "updateControllerConfig": "a controller",
    "cleanBrokerMetadata": "a controller",
    "getSyncStateSet": "a controller",
    "dumpCompactionLog": "a file of Apache's compacted topics",
    "exportMetadataInRocksDB": "a RocksDB folder of Apache's broker",
}
"""The commands of 5.5.0 without a cell, with what each needs."""


def commands_of(version: str) -> list[Command]:
    """The commands that mqadmin of this version has."""
    return [command for command in COMMANDS if command.since <= version]
