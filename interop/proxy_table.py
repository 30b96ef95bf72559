"""The scenarios of clients behind Apache's proxy, and the facts expected before every broker.

Clients of the remoting protocol do what they do without a proxy (`scenarios.table`), but for what
its remoting port does not serve. Those that speak gRPC have scenarios of their own, in
interop/clients/java/grpc/GrpcScenarios.java.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from .scenarios.table import (
    FOUR_QUEUES,
    GRPC_JAVA,
    JAVA_4,
    JAVA_5,
    OWN_TOPIC,
    PYTHON,
    SCENARIOS,
    Scenario,
)

REMOTING_CLIENTS: Final = (JAVA_5, JAVA_4, *PYTHON)
PROXY_CLIENTS: Final = (GRPC_JAVA, *REMOTING_CLIENTS)

PUSH_DEAD: Final = "grpc_push_dead"


def _grpc(
    name: str, expected: Mapping[str, Any], topics: Mapping[str, int] = FOUR_QUEUES
) -> Scenario:
    return Scenario(name, expected, clients=(GRPC_JAVA,), topics=topics)


GRPC_SCENARIOS: Final = (
    _grpc(
        "grpc_simple",
        {
            "first": ["one", 1, "a", ["k1", "k2"], {"colour": "red"}],
            "again": ["one", 2],
            "same_id": True,
            "after_ack": 0,
        },
    ),
    _grpc(
        "grpc_simple_in_pages",
        {"received": [str(number) for number in range(10, 50)], "another_group": 40},
    ),
    _grpc("grpc_push", {"received": [[str(number), 1] for number in range(8)]}),
    _grpc("grpc_push_retry", {"received": [["again", 1], ["again", 2], ["again", 3]]}),
    _grpc(PUSH_DEAD, {"received": [["dead", 1], ["dead", 2]], "more": 0, "dead_letters": ["dead"]}),
    _grpc("grpc_fifo", {"received": [[str(number), 1] for number in range(6)]}),
    _grpc(
        "grpc_forward",
        {"received": [["one", 1, "a", ["k"], {"colour": "red"}]] * 2, "after_ack": 0},
        {"{}": 4, "{}_next": 4},
    ),
    _grpc("grpc_delay", {"received": ["late"], "early": False, "timestamp": True}),
    _grpc("grpc_recall", {"same_id": True, "received": ["kept"]}),
    _grpc(
        "grpc_transaction",
        {"received": ["asked", "committed"], "checked": ["asked", "asked in vain"]},
    ),
    _grpc("grpc_priority", {"received": [[str(priority), priority] for priority in (3, 2, 1, 0)]}),
    _grpc("grpc_filters", {"by_tag": ["a", "c"], "by_sql": ["b"]}),
    _grpc(
        "grpc_refused",
        {
            "unknown_topic": "IllegalStateException",
            "wrong_type": "IllegalArgumentException",
            "acked": "done",
            "acked_again": "done",
            "too_short": "BadRequestException",
            "bad_filter": "InternalErrorException",
            "bad_handle": "BadRequestException",
        },
        topics=OWN_TOPIC,
    ),
)

MESSAGE_TYPES: Final[Mapping[str, str]] = {
    "later_level": "DELAY",
    "later_timer": "DELAY",
    "later_recall": "DELAY",
    "grpc_fifo": "FIFO",
    "grpc_delay": "DELAY",
    "grpc_recall": "DELAY",
    "grpc_transaction": "TRANSACTION",
    "grpc_priority": "PRIORITY",
}
"""Types of the topics, by scenario: the proxy refuses messages of another type. Without one a topic
is for plain messages."""

GROUPS: Final[Mapping[str, Mapping[str, object]]] = {
    "grpc_fifo": {"consumeMessageOrderly": True},
    PUSH_DEAD: {"retryMaxTimes": 1},
}
"""Settings of the groups that exist before, by scenario. Of all others the proxy asks first."""

_NO_ASSIGNMENTS: Final = "the proxy's remoting port serves no assignments (400, 401)"
_POPS_ARE_PULLS: Final = "the proxy's remoting port reads a pop as a pull, and fails"
NOT_SERVED: Final[Mapping[str, str]] = {
    "send_vip": "the proxy has no second port",
    "send_auto_created": "the proxy refuses messages for a topic that no broker has",
    "request_reply": "the proxy's remoting port serves no replies (324, 325)",
    "transaction": "the proxy's remoting port drops the end of a transaction that is no answer to a"
    " check; a gRPC producer's arrives",
    "trace": "before Apache's broker, too, some records of a consumer do not arrive",
    "query": "the proxy's remoting port serves no queries (12, 33)",
    "pop_receive": _POPS_ARE_PULLS,
    "pop_in_order": _POPS_ARE_PULLS,
    **{
        scenario.name: _NO_ASSIGNMENTS
        for scenario in SCENARIOS
        if scenario.name.startswith("pop_") and JAVA_5 in scenario.clients
    },
}
"""Why a scenario cannot run through the proxy. Source: RemotingProtocolServer of 5.5.0, and runs
before Apache's broker."""

WITH_ACCOUNTS: Final = ("grpc_simple", "grpc_push", "grpc_filters", "grpc_transaction")
"""Scenarios that also run with ACL 2.0, by a user with the rights."""

PROXY_SCENARIOS: Final = (
    *GRPC_SCENARIOS,
    *(scenario for scenario in SCENARIOS if set(scenario.clients) & set(REMOTING_CLIENTS)),
)
