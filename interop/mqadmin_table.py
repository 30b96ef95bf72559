"""mqadmin's commands as data: the arguments of each, and the request codes it needs.

Of the 89 commands of 5.5.0, the 69 that concern a plain single broker. Left out are those for
containers and controllers, epochs and the master's flush offset, cold data, RocksDB, compacted
topics, and copyUser and copyAcl, which need two brokers.

Source: RocketMQ 5.3.3 tools/command/MQAdminStartup.java and the commands' options; the requests of
each were traced through DefaultMQAdminExtImpl and MQClientAPIImpl.
"""

from __future__ import annotations

from dataclasses import dataclass

OLD = "4"
NEW = "5"


@dataclass(frozen=True)
class Command:
    """One call of one command.

    Attributes:
      line: the arguments, beginning with the command's name; placeholders in braces (see
        `mqadmin.Names`).
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
      fewer_keys: the place in the docs that says why ours prints fewer `key = value` lines.
    """

    line: str
    codes: tuple[int, ...]
    since: str = OLD
    old_line: str = ""
    fails_when_old: bool = False
    is_refused: bool = False
    numbers: bool = True
    own_topics: bool = False
    enough: str = ""
    other_keys: str = ""
    fewer_keys: str = ""

    @property
    def name(self) -> str:
        return self.line.partition(" ")[0]

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
    Command("topicList", (206,), own_topics=True),
    Command("topicRoute -t {topic}", (105,)),
    Command("topicClusterList -t {topic}", (105, 106)),
    Command("topicStatus -t {topic}", (105, 202)),
    Command("allocateMQ -t {topic} -i 127.0.0.1,127.0.0.2", (105,)),
    Command(
        "brokerStatus -b {broker}",
        (28,),
        numbers=False,
        other_keys=OF_28,
    ),
    Command("brokerConsumeStats -b {broker}", (317,), own_topics=True),
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
        fewer_keys="docs/namesrv.md, Differences: GET_NAMESRV_CONFIG tells the keys that trocket "
        "supports, not all of Apache's",
    ),
    Command("getConsumerConfig -g {group}", (106, 201)),
    Command("consumerProgress -g {group}", (105, 203, 208), numbers=False),
    Command("consumerConnection -g {online}", (105, 203)),
    Command("consumerStatus -g {online}", (105, 203, 307), is_refused=True, numbers=False),
    Command("producerConnection -g {producer} -t {topic}", (105, 204)),
    Command("producer -b {broker}", (328,)),
    Command("statsAll -t {topic}", (105, 206, 208, 300, 315), numbers=False),
    Command("haStatus -b {broker}", (907,), since=NEW, numbers=False),
)

MESSAGES = (
    Command(
        "queryMsgById -t {topic} -i {offset_id}",
        (33, 203, 208, 300),
        old_line="queryMsgById -i {offset_id}",
    ),
    Command("queryMsgByKey -t {topic} -k key3", (12, 105)),
    Command("queryMsgByUniqueKey -t {topic} -i {unique_id}", (12, 33, 105, 203, 208, 300)),
    Command("queryMsgByOffset -t {topic} -b {broker_name} -i 0 -o 1", (11, 105, 203, 208, 300)),
    Command("queryMsgTraceById -t RMQ_SYS_TRACE_TOPIC -i {unique_id}", (12, 105), is_refused=True),
    Command("printMsg -t {topic} -d true", (11, 30, 31, 105)),
    Command("printMsgByQueue -t {topic} -a {broker_name} -i 0 -p true -d true", (11, 30, 31)),
    Command("consumeMessage -t {topic} -b {broker_name} -i 0 -o 0 -c 2", (11, 30, 31)),
    Command("queryCq -b {broker} -t {topic} -q 0 -i 0 -c 3", (321,)),
    Command("sendMessage -t {topic} -p sent -k adm -c TagS -b {broker_name} -i 0", (105, 310)),
    Command("checkMsgSendRT -t {topic} -a 2 -s 16", (105, 310), numbers=False),
    Command("sendMsgStatus -b {broker_name} -s 16 -c 1", (105, 310), numbers=False),
    Command("clusterRT -a 2 -s 16 -i 600", (106, 310), numbers=False, enough=r"(?m)^\w+ .* \d+ *$"),
)

CHANGES = (
    Command("updateTopic -b {broker} -t {topic}New -r 3 -w 3 -p 6", (17,)),
    Command("updateTopicList -b {broker} -f {topics_file}", (18,), since=NEW),
    Command(
        "updateStaticTopic -t {topic}Static -qn 2 -b {broker_name}", (106, 351, 513), since=NEW
    ),
    Command("remappingStaticTopic -t {topic}Static -b {broker_name}", (106, 351, 513), since=NEW),
    Command("updateTopicPerm -b {broker} -t {topic}New -p 4", (17, 105)),
    Command("updateOrderConf -t {topic}New -m put -v {broker_name}:3", (100, 101)),
    Command("updateSubGroup -b {broker} -g {group}New -q 2 -r 5", (200,)),
    Command("updateSubGroupList -b {broker} -f {groups_file}", (225,), since=NEW),
    Command("setConsumeMode -b {broker} -t {topic} -g {group} -m PULL -q 0", (401,), since=NEW),
    Command("resetOffsetByTime -g {group} -t {topic} -s now", (105, 208, 222)),
    Command("skipAccumulatedMessage -g {group} -t {topic}", (105, 208, 222)),
    Command("cloneGroupOffset -s {group} -d {group}New -t {topic} -o true", (15, 105, 208)),
    Command("updateKvConfig -s {topic} -k name -v value", (100,)),
    Command("deleteKvConfig -s {topic} -k name", (102,)),
    Command("updateBrokerConfig -b {broker} -k flushCommitLogLeastPages -v 5", (25,)),
    Command("updateNamesrvConfig -k scanNotActiveBrokerInterval -v 5001", (318,)),
    Command("wipeWritePerm -b {broker_name}", (205,), numbers=False),
    Command("addWritePerm -b {broker_name}", (327,), numbers=False),
    Command("cleanExpiredCQ -b {broker}", (306,)),
    Command("cleanUnusedTopic -b {broker}", (316,)),
    Command("deleteExpiredCommitLog -b {broker}", (329,)),
)

ACCOUNTS = (
    Command(
        "createUser -b {broker} -u alice -p secret -t Normal", (3001,), since=NEW, is_refused=True
    ),
    Command("updateUser -b {broker} -u alice -p other", (3002,), since=NEW, is_refused=True),
    Command("getUser -b {broker} -u alice", (3004,), since=NEW, is_refused=True),
    Command("listUser -b {broker}", (3005,), since=NEW, is_refused=True),
    Command(
        "createAcl -b {broker} -s User:alice -r Topic:{topic} -a Pub,Sub -d Allow -i 127.0.0.1",
        (3006,),
        since=NEW,
        is_refused=True,
    ),
    Command(
        "updateAcl -b {broker} -s User:alice -r Topic:{topic} -a Pub -d Allow -i 127.0.0.1",
        (3007,),
        since=NEW,
        is_refused=True,
    ),
    Command("getAcl -b {broker} -s User:alice", (3009,), since=NEW, is_refused=True),
    Command("listAcl -b {broker}", (3010,), since=NEW, is_refused=True),
    Command("deleteAcl -b {broker} -s User:alice", (3008,), since=NEW, is_refused=True),
    Command("deleteUser -b {broker} -u alice", (3003,), since=NEW, is_refused=True),
)

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

LAST = (
    Command("deleteSubGroup -c {cluster} -g {group}New", (106, 207)),
    Command("deleteTopic -c {cluster} -t {topic}New", (106, 215, 216)),
    # Last: its threads keep watching after it returns.
    Command("startMonitoring", (203, 206, 208)),
)

COMMANDS = (*QUERIES, *MESSAGES, *CHANGES, *ACCOUNTS, *EXPORTS, *LAST)
"""In execution order: later commands see the changes of earlier ones."""


def commands_of(version: str) -> list[Command]:
    """The commands that mqadmin of this version has."""
    return [command for command in COMMANDS if command.since <= version]
