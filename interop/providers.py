"""The providers of jobs by kind of cell, and the selection of a run.

A provider's package is imported only when its jobs are wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from .jobs import Job
from .peers import parse_peer
from .report.cells import Kind

BROKERS = ("trocket", "apache-5.5.0")
"""The default of `--broker`: ours, and the one that it is compared with."""

TOOLS_VERSIONS = ("5.5.0", "4.9.7")
"""Versions of mqadmin, and of Apache's classes in the oracle."""


@dataclass(frozen=True)
class Wanted:
    """The selection of a run.

    Attributes:
      brokers: names that `peers.parse_peer` knows.
      clients: of scenarios; None for all.
      faults: of scenarios; None for all.
      is_fast: leave out slow cells.
    """

    brokers: Sequence[str] = BROKERS
    clients: Sequence[str] | None = None
    faults: Sequence[str] | None = None
    is_fast: bool = False

    @property
    def ours(self) -> list[str]:
        """The trocket brokers, which are compared with Apache's."""
        return [name for name in self.brokers if parse_peer(name).kind == "trocket"]

    @property
    def apaches(self) -> list[str]:
        """Apache's brokers that the harness starts, which ours is compared with."""
        return [name for name in self.brokers if parse_peer(name).kind in ("apache", "docker")]


def _scenarios(wanted: Wanted) -> list[Job]:
    from .scenarios.faults import ALL_FAULTS
    from .scenarios.jobs import jobs

    faults = ALL_FAULTS if wanted.faults is None else wanted.faults
    return jobs(wanted.brokers, clients=wanted.clients, faults=faults, is_fast=wanted.is_fast)


def _accounts(wanted: Wanted) -> list[Job]:
    from .mqadmin_accounts import jobs as mqadmin_jobs
    from .scenarios.account_jobs import jobs

    found = jobs(wanted.brokers, clients=wanted.clients, is_fast=wanted.is_fast)
    return found if wanted.clients or wanted.is_fast else [*found, *mqadmin_jobs(wanted.brokers)]


def _wire(wanted: Wanted) -> list[Job]:
    from .grpc_differ.differ import jobs as grpc_jobs
    from .wire_differ.differ import accounts_jobs, jobs

    pairs = (wanted.ours, wanted.apaches)
    return [*jobs(*pairs), *accounts_jobs(*pairs), *grpc_jobs(*pairs)]


def _store(wanted: Wanted) -> list[Job]:
    from .store_differ import jobs

    return jobs(wanted.ours, wanted.apaches)


def _mqadmin(wanted: Wanted) -> list[Job]:
    from .mqadmin import jobs

    return jobs(wanted.brokers, TOOLS_VERSIONS)


def _oracle(wanted: Wanted) -> list[Job]:
    from .oracle_jobs import jobs

    return jobs(TOOLS_VERSIONS)


def _tls(wanted: Wanted) -> list[Job]:
    from .tls_jobs import jobs

    return jobs(wanted.brokers, TOOLS_VERSIONS, clients=wanted.clients)


def _grpc(wanted: Wanted) -> list[Job]:
    from .grpc_jobs import jobs

    return jobs(wanted.brokers, clients=wanted.clients)


def _proxy(wanted: Wanted) -> list[Job]:
    from .proxy_jobs import jobs

    return jobs(wanted.brokers, clients=wanted.clients)


def _own_proxy(wanted: Wanted) -> list[Job]:
    from .own_proxy_jobs import jobs

    return jobs(wanted.brokers, clients=wanted.clients)


PROVIDERS: Mapping[Kind, Callable[[Wanted], list[Job]]] = MappingProxyType(
    {
        Kind.SCENARIO: _scenarios,
        Kind.ACCOUNTS: _accounts,
        Kind.WIRE: _wire,
        Kind.STORE: _store,
        Kind.MQADMIN: _mqadmin,
        Kind.ORACLE: _oracle,
        Kind.TLS: _tls,
        Kind.GRPC: _grpc,
        Kind.PROXY: _proxy,
        Kind.OWN_PROXY: _own_proxy,
    }
)


def find_jobs(kinds: Iterable[Kind], wanted: Wanted, select: Sequence[str] = ()) -> list[Job]:
    """The jobs of a run, each with its selected cells.

    Args:
      select: parts of cell names (`Cell.name`), case-insensitive; a cell with any of them in its
        name is selected, or every cell if there are none.
    Raises: PeerError: a broker or client is unknown.
    """
    parts = [part.lower() for part in select]

    def is_wanted(name: str) -> bool:
        return not parts or any(part in name.lower() for part in parts)

    found = (job for kind in kinds for job in PROVIDERS[kind](wanted))
    chosen = (job.selected(lambda cell: is_wanted(cell.name)) for job in found)
    return [job for job in chosen if job is not None]
