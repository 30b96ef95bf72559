"""A stopped store as the console shows it: its client, and what a start would find."""

from __future__ import annotations

from typing import Final

from ...client import Client
from ...console.findings import Finding
from ...console.stopped import StoppedStore as ShownStore
from ...operations.doctor.findings import Severity as ShownSeverity
from ...store.offline.findings import Finding as StoreFinding
from ...store.offline.findings import Severity
from .serving import StoppedStore

FINDINGS_MAX: Final = 50
"""Findings on the page, as `trocket store fsck` lists; that command lists more."""


def client_of(store: StoppedStore, timeout_s: float = 3.0) -> Client:
    """A client of a stopped store, not open yet."""
    return Client(store.url, dial=store.dial, timeout_s=timeout_s, wait_for_broker_s=0)


def shown_store(store: StoppedStore) -> ShownStore:
    """What the console says of a stopped store."""
    worst_first = sorted(store.findings, key=lambda each: -each.severity)[:FINDINGS_MAX]
    return ShownStore(store.root, store.is_clean, tuple(map(_shown, worst_first)))


def _shown(finding: StoreFinding) -> Finding:
    is_problem = finding.severity >= Severity.ERROR
    severity = ShownSeverity.PROBLEM if is_problem else ShownSeverity.WARNING
    return Finding(
        check=finding.kind,
        severity=severity.text,
        kind="",
        values={},
        text=finding.what,
        advice=finding.advice,
        page="",
        query={},
    )
