"""The catalogue: all scripts, each with JSON and with ROCKETMQ headers, and their coverage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ...remoting.codec import SerializeType
from . import (
    accounts_requests,
    clients_requests,
    groups_requests,
    messages_requests,
    namesrv_requests,
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
    *unserved_requests.SCRIPTS,
)


def catalogue() -> list[Script]:
    """Every script, in the order of execution."""
    return [make(header) for make in _MAKERS for header in SerializeType]


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
