"""A run as large as real ones, with something of everything, and always the same."""

from __future__ import annotations

import random

from trocket.interop.report.cells import NO_FAULT, Cell, Kind, Run, Verdict

BROKERS = ("trocket", "apache-5.5.0", "apache-4.9.7")
CLIENTS = (
    "java-5.5.0", "java-4.9.7", "go-2.1.2", "python-asyncio", "python-trio", "python-blocking"
)  # fmt: skip
FEATURES = (
    "send_sync",
    "send_async",
    "send_oneway",
    "send_batch",
    "send_by_selector",
    "send_auto_created",
    "send_too_large",
    "send_unicode",
    "send_compressed",
    "send_auto_batched",
    "send_vip",
    "send_namespace",
    "push_concurrent",
    "push_orderly",
    "push_broadcasting",
    "push_tags",
    "push_two_topics",
    "push_sql",
    "group_from_first",
    "group_from_last",
    "group_goes_on",
    "group_rebalance",
    "pull_queue",
    "pull_subscribed",
    "pull_assigned",
    "later_retry",
    "later_partly",
    "later_orderly",
    "later_level",
    "later_timer",
    "later_recall",
    "transaction",
    "query",
    "admin",
    "request_reply",
    "request_unanswered",
    "trace",
)
FAULTS = (NO_FAULT, "restart", "kill")
HOSTILE = """<script>alert("1")</script> & 'q' \x00\x1b[31m \ud800 日本語 🙂 """
DETAILS = {
    Verdict.PASSED: "",
    Verdict.QUIRK: "quirks.md, Sends and pulls: the answer to a plain send has no transactionId",
    Verdict.FAILED: 'received: expected ["body-0", "body-1"]\ngot ["body-0"]\n' + "x" * 300,
    Verdict.SKIPPED: "apache-4.9.7 lacks the feature",
}
FRAMES = (
    '> SEND_MESSAGE_V2 310 opaque=7 {"a":"group","b":"Topic","c":"TBW102","d":"4","e":"0"} 1 kB',
    '< SUCCESS 0 opaque=7 {"msgId":"7F0000010000AAA30000000000000000","queueId":"0"}',
)


def sample_run() -> Run:
    """About 1,700 cells."""
    dice = random.Random(7)

    def cell(kind: Kind, feature: str, client: str, broker: str, fault: str = NO_FAULT) -> Cell:
        verdict = dice.choices(list(Verdict), (90, 4, 0.6 if broker == "trocket" else 0.1, 5))[0]
        frames = FRAMES if verdict is Verdict.FAILED else ()
        seconds = dice.random() * 20
        return Cell(
            kind, feature, client, broker, verdict, fault, DETAILS[verdict], seconds, frames
        )

    cells = [
        cell(Kind.SCENARIO, feature, client, broker, fault)
        for feature in FEATURES
        for fault in (FAULTS if feature.startswith(("send", "push")) else FAULTS[:1])
        for broker in BROKERS
        for client in (CLIENTS[:2] if feature in ("send_vip", "later_partly") else CLIENTS)
    ]
    cells += [
        cell(Kind.WIRE, f"{code}: {case}", "wire", f"trocket vs {apache}")
        for code in ("SEND_MESSAGE_V2 310", "PULL_MESSAGE 11", "QUERY_CONSUMER_OFFSET 14")
        for case in ("unknown topic", "no queue id", "a header that is no JSON at all, cut short")
        for apache in BROKERS[1:]
    ]
    cells += [
        cell(Kind.STORE, feature, "store", broker)
        for feature in ("mix", "ext", "edge", HOSTILE)
        for broker in ("apache-5.5.0 over trocket", "trocket over apache-5.5.0")
    ]
    cells += [
        cell(Kind.MQADMIN, feature, client, broker)
        for feature in ("clusterList", "topicList", "topicRoute", "getAllProducerInfoOfEveryClient")
        for broker in ("trocket", "apache-5.5.0")
        for client in ("mqadmin-5.5.0", "mqadmin-4.9.7")
    ]
    hostile = Cell(
        Kind.ORACLE,
        HOSTILE,
        HOSTILE,
        HOSTILE,
        Verdict.FAILED,
        HOSTILE,
        HOSTILE,
        1.0,
        (HOSTILE,) * 2,
    )
    versions = {
        "trocket": "0.1.0",
        "python": "3.11.2",
        "java": "openjdk 17.0.17",
        "go": "go1.26",
        "apache-5.5.0": "5.5.0",
        "apache-4.9.7": "4.9.7",
    }
    return Run("2026-11-22T03:00:00Z", 412.3, versions, (*cells, hostile))
