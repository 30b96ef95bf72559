"""The table of scenarios: the expected facts of each messaging feature, by client and broker.

Scenarios are implemented in interop/clients/java/src/*Scenario*.java (for 4.2.0 in src-4.2),
interop/clients/go/*.go, interop/clients/python and interop/clients/cpp; the facts expected of all
of them stand here. Where a client or a broker deliberately differs, `differs` says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

JAVA_5 = "java-5.5.0"
JAVA_4 = "java-4.9.7"
GO = "go-2.1.2"
GO_NEXT = "go-2.1.3-0.20251226"
"""Apache's master of that day, which Go's module proxy serves by this name; the first with TLS."""
JAVA = (JAVA_5, JAVA_4)
PYTHON = ("python-asyncio", "python-trio", "python-blocking")
"""Our client, by each of its APIs."""
ALL = (*JAVA, GO, *PYTHON)
"""The clients that have almost every feature."""
POP_CLIENTS = (JAVA_5, *PYTHON)
"""Those whose push consumers can pop."""
JAVA_42 = "java-4.2.0"
CPP = "cpp-python-0.4.4"
"""The C++ client by its Python wheel, rocketmq 0.4.4."""
CLIENTS = (*ALL, JAVA_42, CPP)
TLS_CLIENTS = (*CLIENTS, GO_NEXT)
"""Those of the cells of TLS."""
GRPC_JAVA = "grpc-java-5.2.0"
"""Apache's rocketmq-client-java, which reaches brokers through a proxy."""
GRPC_PYTHON = "grpc-python-5.1.2"
"""Apache's rocketmq-python-client from PyPI."""
GRPC_GO = "grpc-go-5.1.4"
"""Apache's github.com/apache/rocketmq-clients/golang/v5."""
GRPC_NODE = "grpc-node-1.0.8"
"""Apache's rocketmq-client-nodejs from npm."""
PYTHON_BY_GRPC = tuple(f"{each}-grpc" for each in PYTHON)
"""Our client by gRPC, by each of its APIs."""
GRPC_CLIENTS = (GRPC_JAVA, GRPC_PYTHON, GRPC_GO, GRPC_NODE, *PYTHON_BY_GRPC)
START_ORDER = (*TLS_CLIENTS, *GRPC_CLIENTS)
"""In this order programs start."""
WITH_JAVA_42 = (*ALL, JAVA_42)

APACHE_4 = "apache-4.9.7"
APACHES_4 = (APACHE_4, "apache-4.8.0", "apache-4.2.0")
TROCKET = "trocket"
"""The `Cluster.label` of our broker; any other broker is Apache's."""

OWN_TOPIC: Mapping[str, int] = {"{}": 1}

LITE_PULL_IS_NEW = tuple(f"{JAVA_5} on {broker}" for broker in APACHES_4)
"""Lite pull consumers of 5.x pull by LITE_PULL_MESSAGE 361, which brokers of 4.x refuse."""

LEFT_OUT = object()
"""In `differs`: this fact is not reported."""


def same_broker(peer: str) -> str:
    """A broker's name in the tables: an image has the same software as the jars."""
    return peer.replace("docker-", "apache-", 1) if peer.startswith("docker-") else peer


@dataclass(frozen=True)
class Scenario:
    """One feature.

    Attributes:
      name: its name in the programs.
      expected: the facts that a program must report.
      clients: those that have the feature.
      topics: queue counts of topics created in advance; `{}` stands for the scenario's own name.
      differs: other facts, by client, by "on PEER", or by "CLIENT on PEER", in rising precedence.
      not_on: brokers that lack the feature, or "CLIENT on BROKER" for a single pair.
      quirk: the row of docs/quirks.md for a difference of our broker in `differs`.
    """

    name: str
    expected: Mapping[str, Any]
    clients: tuple[str, ...] = ALL
    topics: Mapping[str, int] = field(default_factory=lambda: OWN_TOPIC)
    differs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    not_on: tuple[str, ...] = ()
    quirk: str = ""

    @property
    def argument(self) -> str:
        """The program's argument: the name."""
        return self.name

    def is_quirk(self, client: str, peer: str) -> bool:
        """Whether the expected facts are a deliberate difference of our broker."""
        keys = (f"on {TROCKET}", f"{client} on {TROCKET}")
        return peer == TROCKET and any(key in self.differs for key in keys)

    def facts(self, client: str, peer: str) -> dict[str, Any]:
        """The facts expected from a client on a broker."""
        peer = same_broker(peer)
        differing = (
            self.differs.get(key, {}) for key in (client, f"on {peer}", f"{client} on {peer}")
        )
        facts = dict(self.expected)
        for some in differing:
            facts.update(some)
        return {name: fact for name, fact in facts.items() if fact is not LEFT_OUT}


def texts(name: str, count: int) -> list[str]:
    """`NAME-0`, `NAME-1` and so on."""
    return [f"{name}-{number}" for number in range(count)]


FOUR_QUEUES = {"{}": 4}
UNICODE = ["日本語 ✓ 🙂 \0", "Größe", "schlüssel ключ", "grün ✓ 🙂", "зелёный"]
REFUSED_TWICE = ["0", "1", "1", "1", "2", "3"]

SENDING = (
    Scenario(
        "send_sync",
        {
            "statuses": ["SEND_OK"] * 3,
            "offsets": [0, 1, 2],
            "same_ids": True,
            "same_offset_ids": True,
            "received": [
                [f"body-{n}", f"Tag{n}", f"key-{n} shared", f"red-{n}", n, 0] for n in range(3)
            ],
        },
        # The wheel does not return the broker's ids.
        differs={CPP: {"same_offset_ids": LEFT_OUT}},
        clients=TLS_CLIENTS,
    ),
    Scenario(
        "send_async",
        {"statuses": ["SEND_OK"], "received": texts("body", 10)},
        topics=FOUR_QUEUES,
        clients=WITH_JAVA_42,
    ),
    Scenario("send_oneway", {"received": texts("body", 10)}, topics=FOUR_QUEUES, clients=CLIENTS),
    Scenario(
        "send_batch",
        {
            "status": "SEND_OK",
            "offset": 0,
            "received": [[f"body-{n}", f"Tag{n}", f"key-{n}", n] for n in range(5)],
            "ids_returned": 5,
            "ids_stored": 5,
            "offset_ids_returned": 5,
        },
        differs={
            # This client gives no unique keys to the messages of a batch.
            GO: {"ids_returned": 0},
            # It gives one to the batch, too, with which 4.x replaces those of the messages.
            f"{JAVA_5} on {APACHE_4}": {"ids_stored": 1},
        },
        clients=WITH_JAVA_42,
    ),
    Scenario(
        "send_by_selector",
        {
            "steps_of_each": {str(order): ["0", "1", "2", "3"] for order in range(6)},
            "queues_of_each": [1] * 6,
        },
        topics=FOUR_QUEUES,
        clients=CLIENTS,
    ),
    Scenario(
        "send_auto_created",
        {"status": "SEND_OK", "offset": 0, "received": ["first"], "queues": 4},
        topics={},
        clients=WITH_JAVA_42,
    ),
    Scenario(
        "send_too_large",
        {"refused_by_client": 13, "refused_by_broker": 13, "next": "SEND_OK", "received": ["next"]},
        # This client does not check the size.
        differs={GO: {"refused_by_client": LEFT_OUT}},
        clients=WITH_JAVA_42,
    ),
    Scenario(
        "send_unicode",
        {"received": [UNICODE]},
        clients=CLIENTS,
        # The wheel takes a body for a C string: it may have no zero byte.
        differs={CPP: {"received": [[UNICODE[0].rstrip("\0"), *UNICODE[1:]]]}},
    ),
    Scenario(
        "send_compressed",
        {"same": True, "length": 139_999, "stored_smaller": True},
        clients=CLIENTS,
    ),
    Scenario(
        "send_auto_batched",
        {"statuses": ["SEND_OK"], "received": texts("body", 10), "ids_stored": 10},
        clients=(JAVA_5,),
        differs={f"on {APACHE_4}": {"ids_stored": 1}},
    ),
    Scenario("send_vip", {"status": "SEND_OK", "received": ["vip"]}, clients=(*JAVA, JAVA_42)),
    Scenario(
        "send_namespace",
        {"status": "SEND_OK", "received": ["inside"], "topic_without_namespace": True},
        topics={"space%{}": 1},
        # This client does not strip the namespace from the topic.
        differs={GO: {"topic_without_namespace": False}},
    ),
)

DEAD_TOPICS = {"{}": 1, "%RETRY%{}": 1, "%DLQ%{}": 1}
"""Topics created in advance: a client may poll for new topics only every 30 s."""

CONSUMING = (
    Scenario(
        "push_concurrent",
        {"count": 40, "received": list(range(40)), "queues": 4, "times": [0]},
        topics=FOUR_QUEUES,
        clients=CLIENTS,
    ),
    Scenario(
        "push_orderly",
        {"by_queue": {"0": REFUSED_TWICE, "1": REFUSED_TWICE}},
        topics={"{}": 2},
        clients=WITH_JAVA_42,
    ),
    Scenario(
        "push_broadcasting",
        {"received": [list(range(8)), list(range(8))]},
        topics=FOUR_QUEUES,
        clients=CLIENTS,
    ),
    Scenario("push_tags", {"received": ["0", "1", "4", "6"]}, clients=CLIENTS),
    Scenario(
        "push_two_topics",
        {"first": ["A", "A"], "second": ["B", "B"]},
        topics={"{}": 1, "{}_more": 1},
        clients=WITH_JAVA_42,
    ),
    Scenario(
        "push_sql", {"received": ["3", "4", "12", "14", "16", "18", "20"]}, clients=WITH_JAVA_42
    ),
    Scenario(
        "group_from_first",
        {"received": texts("before", 3) + texts("after", 2)},
        clients=WITH_JAVA_42,
    ),
    Scenario(
        "group_from_last",
        {"received": texts("before", 3) + texts("after", 2)},
        clients=WITH_JAVA_42,
    ),
    Scenario(
        "group_from_time",
        {"received": texts("before", 3) + texts("after", 2)},
        clients=WITH_JAVA_42,
    ),
    Scenario("group_goes_on", {"first": list("01234"), "second": list("567")}, clients=CLIENTS),
    Scenario(
        "group_rebalance",
        {"alone": {"a": 4}, "two": {"a": 2, "b": 2}, "alone_again": {"a": 4}},
        topics=FOUR_QUEUES,
        clients=WITH_JAVA_42,
    ),
    Scenario(
        "pull_queue",
        {
            "pulled": [
                ["FOUND", 4, 0, 10, list("0123")],
                ["FOUND", 10, 0, 10, list("456789")],
                ["NO_NEW_MSG", 10, 0, 10, []],
                ["OFFSET_ILLEGAL", 10, 0, 10, []],
            ],
            "ends": [0, 10, 0, 10],
            "kept": 7,
        },
        # This client's pulls block at a queue's end, and it cannot query offsets.
        differs={
            GO: {
                "pulled": [
                    ["FOUND", 4, 0, 10, list("0123")],
                    ["FOUND", 10, 0, 10, list("456789")],
                    ["OFFSET_ILLEGAL", 10, 0, 10, []],
                ],
                "ends": LEFT_OUT,
            },
            # For a time after the last message 4.x returns its offset, 5.x the next one.
            f"on {APACHE_4}": {"ends": [0, 10, 0, 9]},
            f"{GO} on {APACHE_4}": {"ends": LEFT_OUT},
        },
        clients=WITH_JAVA_42,
    ),
    Scenario(
        "pull_subscribed",
        {"first": list("0123456789"), "second": ["more"]},
        not_on=LITE_PULL_IS_NEW,
    ),
    Scenario(
        "pull_assigned",
        {"all": list("0123456789"), "again": list("6789"), "committed": 10, "by_time": [0, 10]},
        clients=(*JAVA, *PYTHON),
        differs={f"on {APACHE_4}": {"by_time": [0, 9]}},
        not_on=LITE_PULL_IS_NEW,
    ),
)

LATER = (
    Scenario(
        "later_retry",
        {
            "tries": [[n, True, "Tag", "key", True] for n in range(3)],
            "dead": ["fails", 3, True, True],
        },
        topics=DEAD_TOPICS,
        clients=WITH_JAVA_42,
    ),
    Scenario(
        "later_partly",
        {
            "first": [["0", 0], ["1", 0], ["2", 0], ["3", 0]],
            "again": [["2", 1], ["3", 1]],
        },
        clients=(*JAVA, JAVA_42),
        topics=DEAD_TOPICS,
    ),
    Scenario(
        "later_orderly",
        {"came": [["poison", 0], ["poison", 1], ["next", 0]], "dead": ["poison", 2]},
        topics=DEAD_TOPICS,
        # Java's 5.x also counts the last try; Go's tries once more.
        differs={
            JAVA_4: {"dead": ["poison", 1]},
            JAVA_42: {"dead": ["poison", 1]},
            GO: {
                "came": [["poison", 0], ["poison", 1], ["poison", 2], ["next", 0]],
                "dead": ["poison", 1],
            },
        },
        clients=WITH_JAVA_42,
    ),
    Scenario(
        "later_level",
        {"status": "SEND_OK", "received": ["level-1", "Tag", "key", True, 1], "early": False},
        clients=CLIENTS,
    ),
    Scenario(
        "later_timer",
        {
            "received": ["TIMER_DELIVER_MS", "TIMER_DELAY_MS", "TIMER_DELAY_SEC"],
            "early": {
                "TIMER_DELIVER_MS": False,
                "TIMER_DELAY_MS": False,
                "TIMER_DELAY_SEC": False,
            },
        },
        not_on=APACHES_4,
    ),
    Scenario(
        "later_recall",
        {"same_id": True, "received": ["TIMER_DELAY_MS"]},
        clients=(JAVA_5, *PYTHON),
        not_on=APACHES_4,
    ),
    Scenario(
        "transaction",
        {
            "sent": {
                "rolls-back": ["SEND_OK", "ROLLBACK_MESSAGE"],
                "asks-rolls-back": ["SEND_OK", "UNKNOW"],
                "asks": ["SEND_OK", "UNKNOW"],
                "commits": ["SEND_OK", "COMMIT_MESSAGE"],
            },
            "asked": {"asks": 1, "asks-rolls-back": 1},
            "received": ["asks key-asks", "commits key-commits"],
        },
    ),
)

POPPING = (
    Scenario(
        "pop_concurrent",
        {"count": 40, "received": list(range(40)), "queues": 4, "times": [0], "popped": True},
        topics=FOUR_QUEUES,
        clients=POP_CLIENTS,
        not_on=APACHES_4,
    ),
    Scenario("pop_tags", {"received": ["0", "1", "4", "6"]}, clients=POP_CLIENTS, not_on=APACHES_4),
    Scenario(
        "pop_later",
        {"tries": [[n, True, "Tag", "key", True] for n in range(2)], "early": False},
        clients=POP_CLIENTS,
        not_on=APACHES_4,
    ),
    Scenario(
        "pop_taken_over",
        {
            "first": list("0123"),
            "second": list("0123"),
            "times": [1],
            "own_topic": True,
            "late": False,
        },
        topics=FOUR_QUEUES,
        clients=POP_CLIENTS,
        not_on=APACHES_4,
    ),
    Scenario(
        "pop_together",
        {"two": ["a", "b"], "one": ["a"], "again": 0},
        topics=FOUR_QUEUES,
        clients=POP_CLIENTS,
        not_on=APACHES_4,
    ),
    Scenario(
        "pop_shared",
        {"queues": {"a": [0, 1, 2], "b": [2, 3], "c": [0, 1, 3]}},
        topics=FOUR_QUEUES,
        clients=POP_CLIENTS,
        not_on=APACHES_4,
    ),
    Scenario(
        "pop_switched",
        {"popped": [False, True, False], "again": 0},
        topics=FOUR_QUEUES,
        clients=POP_CLIENTS,
        not_on=APACHES_4,
    ),
    Scenario(
        "pop_receive",
        {"first": list("0123"), "rest": list("45"), "again": [["3", 1]], "nothing": []},
        clients=PYTHON,
        not_on=APACHES_4,
    ),
    Scenario(
        "pop_in_order",
        {
            "first": list("01"),
            "blocked": [],
            "second": list("23"),
            "again": list("23"),
            "nothing": [],
        },
        clients=PYTHON,
        not_on=APACHES_4,
    ),
)

ASKING = (
    Scenario(
        "query",
        {
            "by_key_one": ["one", "one two"],
            "by_key_two": ["one two", "two"],
            "by_unique_id": ["two"],
            "by_offset_id": ["two"],
            "unknown_key": 208,
        },
        clients=(*JAVA, *PYTHON),
    ),
    Scenario(
        "admin",
        {"queues": 3, "listed": True, "listed_when_deleted": False, "has_tools_group": True},
        clients=(GO, GO_NEXT),
    ),
    Scenario("request_reply", {"sync": "echo sync", "async": "echo async"}),
    Scenario("request_unanswered", {"timed_out": True}),
    Scenario(
        "trace",
        {"kinds": ["Pub", "SubAfter", "SubBefore"], "found_by_id": True},
        # Observed, cause unknown: some trace records of this client are missing.
        not_on=tuple(f"{JAVA_5} on {broker}" for broker in APACHES_4),
    ),
)

SCENARIOS = (*SENDING, *CONSUMING, *LATER, *POPPING, *ASKING)
