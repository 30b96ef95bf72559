"""The table of scenarios of clients that speak gRPC: what each client reports, whatever serves it.

The scenarios are implemented in interop/clients/java/grpc/GrpcScenarios.java,
interop/clients/go_grpc, interop/clients/node_grpc and interop/clients/python_grpc; for our client
by gRPC, in interop/clients/python/grpc.py. The expected facts are those before Apache's proxy;
trocket's broker has to give the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from ..accounts import Account, Accounts, Generation, Grant
from ..wire import Keys
from .table import (
    FOUR_QUEUES,
    GRPC_CLIENTS,
    GRPC_GO,
    GRPC_NODE,
    GRPC_PYTHON,
    OWN_TOPIC,
    PYTHON_BY_GRPC,
    Scenario,
)

PUSH_DEAD: Final = "grpc_push_dead"

NOT_OURS: Final = ("grpc_priority", "grpc_refused")
"""Scenarios that our client does not have: its messages have no priority, and its errors are those
of its other scenarios."""


def _grpc(
    name: str,
    expected: Mapping[str, Any],
    topics: Mapping[str, int] = FOUR_QUEUES,
    differs: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> Scenario:
    left_out = PYTHON_BY_GRPC if name in NOT_OURS else ()
    clients = tuple(each for each in GRPC_CLIENTS if each not in left_out)
    return Scenario(name, expected, clients=clients, topics=topics, differs=differs)


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
    _grpc(
        "grpc_priority",
        {"received": [[str(priority), priority] for priority in (3, 2, 1, 0)]},
        differs={
            # This client's received messages have no priority.
            GRPC_GO: {"received": ["3", "2", "1", "0"]},
            # This client takes priority 0 for none, and refuses the message itself.
            GRPC_NODE: {"received": [[str(priority), priority] for priority in (3, 2, 1)]},
        },
    ),
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
        OWN_TOPIC,
        # Each client has its own names. A wrong type is refused by the clients themselves.
        {
            # This client starts without its topics' routes.
            GRPC_PYTHON: {"unknown_topic": "done"},
            GRPC_GO: {
                "unknown_topic": "error",
                "wrong_type": "error",
                "too_short": "ILLEGAL_INVISIBLE_TIME",
                "bad_filter": "INTERNAL_SERVER_ERROR",
                "bad_handle": "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE",
            },
            GRPC_NODE: {
                "unknown_topic": "Error",
                "wrong_type": "TypeError",
                "bad_handle": "Error",
            },
        },
    ),
)
GRPC_BY_NAME: Final[Mapping[str, Scenario]] = MappingProxyType(
    {each.name: each for each in GRPC_SCENARIOS}
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
"""Types of the topics, by scenario: messages of another type are refused. Without one a topic is
for plain messages."""

GROUPS: Final[Mapping[str, Mapping[str, object]]] = {
    "grpc_fifo": {"consumeMessageOrderly": True},
    PUSH_DEAD: {"retryMaxTimes": 1},
}
"""Settings of the groups that exist before, by scenario. Of all others the clients ask first."""

GROUP_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "grpc_simple_in_pages": ("{}", "{}_other"),
    "grpc_filters": ("{}_tag", "{}_sql"),
    "grpc_refused": ("{}", "{}_bad"),
}
"""The groups of a scenario, where there is another than its own; `{}` stands for its own name."""

WITH_ACCOUNTS: Final = ("grpc_simple", "grpc_push", "grpc_filters", "grpc_transaction")
"""Scenarios that also run with ACL 2.0, by a user with the rights."""
SIGNED: Final = ", with accounts"
"""The end of the features of cells with access control."""
USER: Final = Account(
    Keys("interop-user", "the-secret-of-user"),
    (Grant("Topic:*", ("Pub", "Sub")), Grant("Group:*", ("Sub",))),
)
ACCOUNTS: Final = Accounts(Generation.ACL_2, (USER,))
ACCOUNT_VARIABLE: Final = {"INTEROP_ACCOUNT": f"{USER.keys.access_key} {USER.keys.secret_key}"}
"""The environment of programs that sign as `USER`."""
