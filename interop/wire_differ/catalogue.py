"""The catalogue: all scripts and their coverage.

Each script is played with JSON and with ROCKETMQ headers, except those with codes that a ROCKETMQ
header cannot carry.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ...remoting.codec import SerializeType
from . import (
    accounts_requests,
    assignment_requests,
    clients_requests,
    groups_requests,
    messages_requests,
    namesrv_requests,
    pop_ack_requests,
    pop_requests,
    pop_waiting_requests,
    pulls_requests,
    sends_requests,
    slaves_requests,
    static_topics_requests,
    statistics_requests,
    timers_requests,
    topics_requests,
    unserved_requests,
)
from .request import Request, Script

_MAKERS = (
    *namesrv_requests.SCRIPTS,
    *topics_requests.SCRIPTS,
    *static_topics_requests.SCRIPTS,
    *groups_requests.SCRIPTS,
    *sends_requests.SCRIPTS,
    *slaves_requests.SCRIPTS,
    *timers_requests.SCRIPTS,
    *pulls_requests.SCRIPTS,
    *messages_requests.SCRIPTS,
    *clients_requests.SCRIPTS,
    *statistics_requests.SCRIPTS,
    *accounts_requests.SCRIPTS,
    *assignment_requests.SCRIPTS,
    *unserved_requests.SCRIPTS,
)
_JSON_MAKERS = (
    *pop_requests.JSON_SCRIPTS,
    *pop_ack_requests.JSON_SCRIPTS,
    *pop_waiting_requests.JSON_SCRIPTS,
    *assignment_requests.JSON_SCRIPTS,
)
_ROCKETMQ_MAKERS = pop_requests.ROCKETMQ_SCRIPTS


def catalogue() -> list[Script]:
    """Every script, in the order of execution."""
    return [
        *(make(header) for make in _MAKERS for header in SerializeType),
        *(make(SerializeType.JSON) for make in _JSON_MAKERS),
        *(make(SerializeType.ROCKETMQ) for make in _ROCKETMQ_MAKERS),
    ]


def coverage(scripts: Iterable[Script]) -> Counter[tuple[str, int, bool]]:
    """Number of requests by server, code, and whether they are erroneous.

    A request counts once, whichever headers it is sent with.
    """
    seen = {
        (step.server.value, step.code.value, step.erroneous, script.name, step.name)
        for script in scripts
        for _, step in script.features()
        if isinstance(step, Request)
    }
    return Counter((server, code, erroneous) for server, code, erroneous, _, _ in seen)
