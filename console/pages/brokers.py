"""Pages of brokers and name servers: all, and one with its statistics and its replication."""

from __future__ import annotations

import msgspec

from ...client import BrokerStats, ClientError, ServerError
from ...client.admin.results import BrokerInfo
from ...operations.file_deletion import FileDeletion, file_deletion
from ...operations.sampling import BrokerRow
from ...operations.settings import Difference, differences
from ..findings import Finding, about_broker
from .page import Ask, Page


class Brokers(msgspec.Struct, frozen=True, rename="camel"):
    """All brokers of the newest sample, and who is registered.

    Attributes:
      name_servers: `host:port` of each.
      warning: of the name server, such as two brokers with one name; "": none.
      registered: name, cluster and addresses, slaves among them.
    """

    error: str
    name_servers: tuple[str, ...]
    warning: str
    brokers: tuple[BrokerRow, ...]
    registered: tuple[BrokerInfo, ...]


async def brokers(ask: Ask) -> Brokers:
    """The brokers of the newest sample."""
    sample = await ask.account.samples.fresh()
    view = await ask.admin.cluster()
    rows = sample.brokers if sample else ()
    return Brokers(ask.account.samples.error, view.name_servers, view.warning, rows, view.brokers)


class SlaveRow(msgspec.Struct, frozen=True, rename="camel"):
    """A slave that is connected to a master.

    Attributes:
      has: the end of what it acknowledged, in bytes of the log.
      behind: bytes that it lacks.
      in_sync: whether the master counts it as being in sync.
    """

    address: str
    has: int
    behind: int
    in_sync: bool


class FollowedRow(msgspec.Struct, frozen=True, rename="camel"):
    """The master that a slave follows.

    Attributes:
      address: `host:port` of the master.
      has: the end of the slave's log, in bytes.
      read_ms: when bytes were last received from the master; None: not since it connected.
    """

    address: str
    has: int
    read_ms: int | None


class Broker(msgspec.Struct, frozen=True, rename="camel"):
    """A broker.

    Attributes:
      stats: how it runs.
      findings: of the doctor about it; None: it still collects.
      role: its brokerRole; "": it does not say.
      slaves: of a master; None: it does not say.
      followed: of a slave; None: it is a master, follows none, or does not say.
      deletion: of the files of its log; None: it does not tell its settings.
      differences: settings that are not RocketMQ's defaults.
      settings: key and value of broker.conf, sorted; empty: it does not say.
    """

    name: str
    stats: BrokerStats
    findings: tuple[Finding, ...] | None
    role: str
    slaves: tuple[SlaveRow, ...] | None
    followed: FollowedRow | None
    deletion: FileDeletion | None
    differences: tuple[Difference, ...]
    settings: tuple[tuple[str, str], ...]


async def broker(ask: Ask) -> Broker:
    """A broker's statistics, replication, files and settings."""
    name = ask.text("name")
    stats = await ask.admin.broker_stats(name)
    slaves, followed = await _replication(ask, name)
    try:
        settings = await ask.admin.broker_config(name)
    except ClientError:
        settings = {}
    found = ask.account.findings.latest()
    return Broker(
        name=name,
        stats=stats,
        findings=None if found is None else about_broker(found, settings.get("brokerName", name)),
        role=settings.get("brokerRole", ""),
        slaves=slaves,
        followed=followed,
        deletion=file_deletion(stats, settings) if settings else None,
        differences=tuple(differences(settings)),
        settings=tuple(sorted(settings.items())),
    )


async def _replication(
    ask: Ask, name: str
) -> tuple[tuple[SlaveRow, ...] | None, FollowedRow | None]:
    """The slaves of a master, and the master of a slave."""
    try:
        status = await ask.admin.ha_status(name)
    except ServerError:  # one of 4.x
        return None, None
    slaves = tuple(
        SlaveRow(each.addr, each.slave_ack_offset, each.diff, each.in_sync)
        for each in status.ha_connection_info
    )
    client = status.ha_client_runtime_info
    if status.master or not client.master_addr:
        return slaves, None
    return slaves, FollowedRow(
        client.master_addr, client.max_offset, client.last_read_timestamp or None
    )


PAGES = (
    Page("brokers", brokers, table="brokers", needs_broker=True),
    Page("broker", broker, section="brokers", needs_broker=True),
)
