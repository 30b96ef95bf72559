"""The catalogue: all scripts, and how many calls each method gets."""

from __future__ import annotations

from collections import Counter

from . import (
    clients_calls,
    lite_calls,
    protocol_calls,
    receives_calls,
    routes_calls,
    sends_calls,
    transactions_calls,
)
from .call import Script

SCRIPTS: tuple[Script, ...] = (
    *routes_calls.SCRIPTS,
    *sends_calls.SCRIPTS,
    *receives_calls.SCRIPTS,
    *transactions_calls.SCRIPTS,
    *clients_calls.SCRIPTS,
    *lite_calls.SCRIPTS,
    *protocol_calls.SCRIPTS,
)
"""Every script. They do not depend on one another."""


def coverage() -> Counter[str]:
    """Number of compared calls by method; streams of commands count as Telemetry."""
    return Counter(name.partition(":")[0] for script in SCRIPTS for name, _ in script.compared())
