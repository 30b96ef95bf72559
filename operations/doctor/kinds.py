"""Kinds of findings with their English sentences, and the words in them. Pure.

Other languages have the sentences by the names of the kinds.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple


class Sentence(NamedTuple):
    """What is wrong and what to do, with the names of values in braces."""

    text: str
    advice: str


_START_OR_OPEN: Final = (
    "If it is stopped, start it. Otherwise open this port, and the one two below, to clients, or "
    "set brokerIP1 to an address that they reach"
)
_SET_IP: Final = "Set brokerIP1 in its broker.conf to an address that clients reach, and restart it"
_SYNCHRONIZE: Final = (
    "Let NTP set both clocks: delivery times, ages of messages and the expiry of files are wrong "
    "by this difference"
)
_FREE_SPACE: Final = "Free space, enlarge the disk, or lower fileReservedTime"
_ALLOW: Final = "If that is not meant: trocket broker config {name} --set brokerPermission=6"
_ALLOW_TOPIC: Final = "If that is not meant: trocket topic perm NAME RW"


class Kind(Enum):
    """All kinds, with what is said of them."""

    NO_NAME_SERVER = Sentence(
        "no name server answers: {reasons}",
        "Check that a name server runs there, that --url has its port (9876, if nothing else was "
        "configured), and that no firewall is between",
    )
    NAME_SERVER_FAILS = Sentence(
        "{address} does not work as a name server: {error}", NO_NAME_SERVER.advice
    )
    NAME_SERVER_OF_SEVERAL_FAILS = Sentence(
        "{address} does not work as a name server: {error}. Clients use the others",
        NO_NAME_SERVER.advice,
    )
    NAME_SERVER_WARNS = Sentence(
        "{address} warns: {warning}",
        "Give each broker its own brokerName, or a master and its slaves different brokerIds: with "
        "the same name and id they replace each other in every route",
    )
    NAME_SERVERS_DIFFER = Sentence(
        "the name servers do not agree about {broker} ({at})",
        "Let namesrvAddr of every broker list all name servers. If the addresses differ, two "
        "brokers have the same name and id",
    )
    NO_BROKER = Sentence(
        "no broker is registered at the name server",
        "Start one, with namesrvAddr (or -n) set to this name server; its log tells whether the "
        "registration worked",
    )
    NO_MASTER = Sentence(
        "{broker} has no master, so nothing can be sent to it",
        "Start its master, or promote a slave",
    )
    ADDRESS_LOOPBACK = Sentence(
        "{broker} advertises an address by which every client means its own machine", _SET_IP
    )
    ADDRESS_ANY = Sentence("{broker} advertises an invalid address", _SET_IP)
    UNREACHABLE = Sentence(
        "{broker} cannot be reached at the address that it advertises: {error}", _START_OR_OPEN
    )
    UNREACHABLE_CONTAINER = Sentence(
        "{broker} cannot be reached at the address that it advertises, which looks like one inside "
        "a container's network: {error}",
        "Publish the ports 10911 and 10909 of the container, set brokerIP1 to the host's address, "
        "and restart the broker",
    )
    UNREACHABLE_LINK_LOCAL = Sentence(
        "{broker} cannot be reached at the address that it advertises, which is of one network "
        "card: {error}",
        _SET_IP,
    )
    ANOTHER_BROKER = Sentence(
        "{broker} is another broker: {name}, brokerId {id}. Two brokers advertise the same address",
        "Give each broker its own brokerIP1 or listenPort",
    )
    REQUEST_FAILS = Sentence(
        "{broker} did not answer {request}: {reason}",
        "Some checks know less about it. If it was stopped or restarted just now, try again; "
        "otherwise see its log",
    )
    CLOCK_AHEAD = Sentence(
        "the clock of {broker} is {seconds} s or more ahead of this machine's", _SYNCHRONIZE
    )
    CLOCK_BEHIND = Sentence(
        "the clock of {broker} is {seconds} s or more behind this machine's", _SYNCHRONIZE
    )
    BROKER_VERSIONS = Sentence(
        "brokers have different versions ({versions})",
        "Bring them to one version: clients may be refused by some of them what others do",
    )
    CLIENT_VERSIONS = Sentence(
        "members of the group {group} are different clients ({clients})",
        "They divide the queues among themselves, which works only if all do it in the same way: "
        "use one client for all of them",
    )
    NO_SLAVE = Sentence(
        "{broker} is a SYNC_MASTER and has no slave",
        "Start its slave. Until then messages have one copy, and sends are refused or answered "
        "with SLAVE_NOT_AVAILABLE (in 5.x, only with inSyncReplicas above 1)",
    )
    SLAVE_BEHIND = Sentence(
        "{broker} is {megabytes} MB behind its master",
        "Check that it reaches the master's haListenPort at brokerIP2, and that its disk and "
        "network are fast enough",
    )
    CONTROLLERS_FAIL = Sentence(
        "no controller of {broker} leads, so it gets no other master ({names}): {reasons}",
        "Start the controllers, most of them if there are several, and check that controllerAddr "
        "of the brokers has their addresses",
    )
    CONTROLLERS_WITHOUT_LEADER = Sentence(
        "no controller of {broker} leads, or none knows it ({names})",
        "Wait for their election; if this stays, start the missing controllers, or see the log of "
        "{broker} for why it is not registered there",
    )
    CONTROLLER_LOOPBACK = Sentence(
        "the controllers of {broker} announce {address}, by which its brokers mean themselves",
        "Give the controllers addresses that the brokers reach, and restart them",
    )
    MEMBER_LOOPBACK = Sentence(
        "a broker of {broker} has the address {address}, and others are on other machines", _SET_IP
    )
    SET_WITHOUT_MASTER = Sentence(
        "{broker} has no master that is alive; only a broker that is in sync may be elected: "
        "{names}",
        "Start one of them. Others may lack confirmed messages",
    )
    SET_OF_ONE = Sentence(
        "only {address} of the {count} brokers of {broker} is in sync: no other can take its place",
        "Start the others, and see in their logs whether they follow the master",
    )
    EPOCH_BEHIND = Sentence(
        "{address} of {broker} has the epoch {epoch}, and its master writes in {of_master}: it "
        "does not follow this master yet",
        "If this stays, see its log: its log may have no common part with the master's",
    )
    DISK_REFUSES = Sentence(
        "the disk with the {what} of {broker} is {percent} % full: sends are refused", _FREE_SPACE
    )
    DISK_CLEANS = Sentence(
        "the disk with the {what} of {broker} is {percent} % full: the oldest messages are "
        "deleted, however young they are",
        _FREE_SPACE,
    )
    DISK_EXPIRES = Sentence(
        "the disk with the {what} of {broker} is {percent} % full: expired files are deleted at "
        "any hour",
        _FREE_SPACE,
    )
    SENDS_FORBIDDEN = Sentence("{broker} refuses all sends (brokerPermission={permission})", _ALLOW)
    PULLS_FORBIDDEN = Sentence("{broker} refuses all pulls (brokerPermission={permission})", _ALLOW)
    WRITE_PERM_TAKEN = Sentence(
        "the name server hides {broker} from producers: its write permission was taken away",
        "If that is not meant: trocket broker add-write-perm {name}",
    )
    SEND_REFUSED = Sentence(
        "{broker} refuses a send: code {code}, {remark}", "See its log for the reason"
    )
    SEND_REFUSED_DISK = Sentence(
        "{broker} refuses a send: code {code}, as the disk with its {what} is {percent} % full, "
        "above the limit of {limit} %",
        _FREE_SPACE,
    )
    SEND_REFUSED_SLAVE = Sentence(
        "{broker} refuses a send: code {code}, as it is a slave (brokerRole=SLAVE), although it is "
        "registered as a master",
        "Set brokerRole to ASYNC_MASTER or SYNC_MASTER, or its brokerId above 0",
    )
    SEND_REFUSED_STORE = Sentence(
        "{broker} refuses a send: code {code}, although no disk is above its limit and it is no "
        "slave: its store does not write, as it stops or an error has occurred ({remark})",
        "See its log for the error, and restart it",
    )
    SENDS_WAIT = Sentence(
        "sends to {broker} wait for {milliseconds} ms, and are refused as it is busy",
        "Its disk is too slow, or it has too much to do: add brokers, or a faster disk",
    )
    DISPATCH_BEHIND = Sentence(
        "{megabytes} MB of {broker} are stored and not yet visible to consumers",
        "If this stays, its disk is too slow; after a restart it passes",
    )
    NOT_READY = Sentence("{broker} is not ready: {missing}", "See its log")
    LOOP_LATE = Sentence(
        "requests wait {seconds} s for the event loop of {broker}",
        "It has too much to do; its log names slow requests",
    )
    EXTENSION_FAILS = Sentence(
        "the C extension of {broker} failed {count} times since its start, at {path}",
        "No stored message is lost: pure Python did it, at more CPU, or the client repeated it. "
        "Its log has the errors: please report them. TROCKET_PURE=1 starts it without the "
        "extension",
    )
    EXTENSION_UNUSED = Sentence(
        "the C extension of {broker} did {taken} of {total} {path}; pure Python did the others, at "
        "several times the CPU",
        "This may be due to the messages: bodies above 64 KiB, properties that are not ASCII, or "
        "static topics. If they have none of these, please report it",
    )
    TOPIC_WITHOUT_QUEUE = Sentence(
        "topics on {broker} of which no queue can be written: {topics}",
        "Give them queues (trocket topic create NAME --queues N), or delete them",
    )
    TOPIC_QUEUES_UNREAD = Sentence(
        "topics on {broker} of which there are more write queues than read queues, so some "
        "messages are never consumed: {topics}",
        "Raise the number of read queues to that of write queues: trocket topic create NAME "
        "--queues N",
    )
    TOPIC_SENDS_FORBIDDEN = Sentence(
        "topics on {broker} of which sends are forbidden by the permission: {topics}",
        _ALLOW_TOPIC,
    )
    TOPIC_CONSUMING_FORBIDDEN = Sentence(
        "topics on {broker} of which consuming is forbidden by the permission: {topics}",
        _ALLOW_TOPIC,
    )
    TOPIC_NOT_EVERYWHERE = Sentence(
        "topics of the cluster {cluster} that {brokers} does not have: {topics}",
        "If their load should be shared, create them on the whole cluster (trocket topic create)",
    )
    ORDER_NAMES_QUEUES = Sentence(
        "the order of the topic {topic} names {part}, and there are {count} write queues",
        "Correct it with trocket topic order-conf: producers send to these queues",
    )
    ORDER_NAMES_BROKER = Sentence(
        "the order of the topic {topic} names {part}, and this broker does not have the topic or "
        "did not answer",
        "Correct it with trocket topic order-conf, or start the broker",
    )
    SUBSCRIPTIONS_DIFFER = Sentence(
        "members of the group {group} want different things of the topic {topic} ({wants})",
        "Give all members of a group the same subscriptions, or several groups: brokers use the "
        "latest heartbeat's, so messages are skipped",
    )
    GROUPS_LEFT_OUT = Sentence(
        "the members of {count} of {total} groups were not asked for: {groups}",
        "A broker is asked for at most {limit} groups at one time: trocket group clients NAME "
        "shows one",
    )
    MEMBERS_LEFT_OUT = Sentence(
        "{count} of {total} members of the group {group} were not asked for their subscriptions",
        "At most {limit} members of a group are asked at one time, and {limit_of_all} in all",
    )
    NO_CONSUMER = Sentence(
        "the group {group} has no connected consumer, and {count} messages wait ({waiting})",
        "Start its consumers, or delete the group if it is not used any more",
    )
    CONSUMERS_UNKNOWN = Sentence(
        "messages wait for {count} groups whose members were not asked for: {groups}",
        "trocket group clients NAME shows whether one has members",
    )
    GROUP_REFUSED = Sentence("not all is known of {groups}: {error}", "Try again")


class Word(Enum):
    """Words that are values of a sentence."""

    UNKNOWN = "unknown"
    NOTHING = "nothing"
    COMMIT_LOG = "commit log"
    CONSUME_QUEUES = "consume queues"
    SENDS = "sends"
    BATCHES = "batches"
    DELIVERIES = "deliveries of delayed messages"
    HOLDS = "pulls that wait for a message"
    WAKES = "answers to waiting pulls"
