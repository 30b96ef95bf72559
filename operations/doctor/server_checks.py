"""Checks of name servers and brokers: functions from facts to findings.

Pure. The constants are the limits from which on something is reported.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping
from typing import Final

from ...native.path_counts import TROUBLE_KEY
from ...remoting.bodies import PERM_READ, PERM_WRITE
from ...remoting.hosts import host_of, join_address
from ...remoting.response_codes import ResponseCode
from .facts import (
    MASTER_ID,
    BrokerFacts,
    BrokerKey,
    ClockReading,
    Facts,
    GroupFacts,
    SendAnswer,
)
from .findings import About, Finding, Pair, Pairs, Value, problem, some, warning
from .kinds import Kind, Word

CLOCK_WARNING_MS: Final = 2_000
CLOCK_PROBLEM_MS: Final = 60_000
"""How far clocks may differ. Brokers tell their time in whole seconds."""

DISK_USED_MAX: Final = 75
DISK_CLEAN_FORCIBLY: Final = 85
DISK_WARNING_LEVEL: Final = 90
"""RocketMQ's limits in percent: old files are deleted, files are deleted at any age, sends are
refused. Source: diskMaxUsedSpaceRatio, diskSpaceCleanForciblyRatio, diskSpaceWarningLevelRatio."""

SLAVE_BEHIND_MAX: Final = 256 * 1024 * 1024
"""Bytes that a slave may be behind. Source: haMaxGapNotInSync (4.x: haSlaveFallbehindMax)."""

DISPATCH_BEHIND_MAX: Final = 64 * 1024 * 1024
"""Bytes that may be stored and not yet be in the consume queues."""

SEND_WAIT_MAX_MS: Final = 200
"""Time after which a broker refuses a send that waits. Source: waitTimeMillsInSendQueue."""

LOOP_LAG_MAX_S: Final = 0.2
"""As the alert EventLoopLate of deploy/grafana."""


# Addresses


def name_servers(facts: Facts) -> Iterator[Finding]:
    failed = [each for each in facts.name_servers if each.error]
    for each in failed:
        if len(failed) == len(facts.name_servers):
            yield problem(Kind.NAME_SERVER_FAILS, address=each.address, error=each.error)
        else:
            kind = Kind.NAME_SERVER_OF_SEVERAL_FAILS
            yield warning(kind, address=each.address, error=each.error)
    for each in facts.name_servers:
        if each.warning:
            yield problem(Kind.NAME_SERVER_WARNS, address=each.address, warning=each.warning)
    lists = {each.address: each.brokers for each in facts.name_servers if not each.error}
    if len(lists) < 2:
        return
    for key in sorted({key for brokers in lists.values() for key in brokers}):
        at = {address: brokers.get(key) for address, brokers in lists.items()}
        if len(set(at.values())) > 1:
            yield warning(
                Kind.NAME_SERVERS_DIFFER,
                broker=_key_text(key),
                at=Pairs(tuple(Pair(ns, broker or Word.UNKNOWN) for ns, broker in at.items())),
            )


def _key_text(key: BrokerKey) -> str:
    return key.name if key.broker_id == MASTER_ID else f"{key.name} slave {key.broker_id}"


def registered(facts: Facts) -> Iterator[Finding]:
    if not facts.brokers:
        yield problem(Kind.NO_BROKER)
    ids: dict[str, set[int]] = {}
    for each in facts.brokers:
        ids.setdefault(each.key.name, set()).add(each.key.broker_id)
    for name in sorted(ids):
        if MASTER_ID not in ids[name]:
            yield problem(Kind.NO_MASTER, broker=name)


def addresses(facts: Facts) -> Iterator[Finding]:
    for each in facts.brokers:
        kind = address_kind(each.address)
        if kind == "loopback" and not _is_local(facts):
            yield problem(Kind.ADDRESS_LOOPBACK, broker=each.label)
        elif kind == "any":
            yield problem(Kind.ADDRESS_ANY, broker=each.label)
        elif each.error:
            unreachable = _UNREACHABLE.get(kind, Kind.UNREACHABLE)
            yield problem(unreachable, broker=each.label, error=each.error)
        else:
            yield from _identity(each)


_UNREACHABLE: Final[Mapping[str, Kind]] = {
    "container": Kind.UNREACHABLE_CONTAINER,
    "link-local": Kind.UNREACHABLE_LINK_LOCAL,
}


def _identity(broker: BrokerFacts) -> Iterator[Finding]:
    name = broker.config.get("brokerName", broker.key.name)
    number = broker.config.get("brokerId", str(broker.key.broker_id))
    if name != broker.key.name or (number != str(broker.key.broker_id)):
        yield problem(Kind.ANOTHER_BROKER, broker=broker.label, name=name, id=number)


def _is_local(facts: Facts) -> bool:
    """Whether the name servers are on this machine, so that loopback addresses may be meant."""
    return all(address_kind(each.address) == "loopback" for each in facts.name_servers)


def address_kind(address: str) -> str:
    """What kind of address a `host:port` has.

    Returns: "loopback", "any" (such as 0.0.0.0), "container" (Docker's usual networks),
      "link-local", or "" for all others and for names.
    """
    host = host_of(address)
    if host == "localhost":
        return "loopback"
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        return ""
    if ip.is_loopback:
        return "loopback"
    if ip.is_unspecified:
        return "any"
    if ip.is_link_local:
        return "link-local"
    if ip.version == 4 and ip in _CONTAINERS:
        return "container"
    return ""


_CONTAINERS: Final = ipaddress.ip_network("172.16.0.0/12")


def answers(facts: Facts) -> Iterator[Finding]:
    for each in facts.answering:
        for request, reason in each.gaps.items():
            yield warning(Kind.REQUEST_FAILS, broker=each.label, request=request, reason=reason)


# Clocks, versions, roles


def clocks(facts: Facts) -> Iterator[Finding]:
    for each in facts.answering:
        if each.clock is None:
            continue
        low, high = each.clock
        off_ms = low if low > 0 else -high if high < 0 else 0
        if off_ms < CLOCK_WARNING_MS:
            continue
        kind = Kind.CLOCK_AHEAD if low > 0 else Kind.CLOCK_BEHIND
        make = problem if off_ms >= CLOCK_PROBLEM_MS else warning
        yield make(kind, _about(each), broker=each.label, seconds=off_ms // 1000)


def _about(broker: BrokerFacts) -> About:
    return About(broker=broker.key.name)


def versions(facts: Facts) -> Iterator[Finding]:
    names: dict[str, list[str]] = {}
    for each in facts.answering:
        version = each.runtime.get("brokerVersionDesc", "")
        if version:
            names.setdefault(version, []).append(_key_text(each.key))
    if len(names) > 1:
        of_each = tuple(Pair(version, some(names[version])) for version in sorted(names))
        yield warning(Kind.BROKER_VERSIONS, versions=Pairs(of_each))
    for group in facts.groups:
        yield from _client_versions(group)


def _client_versions(group: GroupFacts) -> Iterator[Finding]:
    kinds: dict[tuple[str, str], list[str]] = {}
    for member in group.members:
        kinds.setdefault((member.language, _major(member.version)), []).append(member.client_id)
    if len(kinds) > 1:
        clients = tuple(
            Pair(f"{language} {major}", some(ids))
            for (language, major), ids in sorted(kinds.items())
        )
        about = About(group=group.name)
        yield warning(Kind.CLIENT_VERSIONS, about, group=group.name, clients=Pairs(clients))


def _major(version: str) -> str:
    """The first part of a version's name: V5 of V5_5_0."""
    return version.partition("_")[0]


def roles(facts: Facts) -> Iterator[Finding]:
    slaves: dict[str, list[BrokerFacts]] = {}
    for each in facts.brokers:
        if not each.is_master:
            slaves.setdefault(each.key.name, []).append(each)
    for master in facts.masters:
        mine = slaves.get(master.key.name, [])
        if master.config.get("brokerRole") == "SYNC_MASTER" and not mine:
            yield warning(Kind.NO_SLAVE, _about(master), broker=master.label)
        end = master.number("commitLogMaxOffset")
        for slave in mine:
            slave_end = slave.number("commitLogMaxOffset")
            if end is None or slave_end is None:
                continue
            if end - slave_end > SLAVE_BEHIND_MAX:
                yield warning(
                    Kind.SLAVE_BEHIND,
                    _about(master),
                    broker=slave.label,
                    megabytes=_megabytes(end - slave_end),
                )


def _megabytes(size: float) -> int:
    return round(size / 1e6)


# Disk, sends, health


_DISKS: Final = (
    ("commitLogDiskRatio", Word.COMMIT_LOG),
    ("consumeQueueDiskRatio", Word.CONSUME_QUEUES),
)


def disks(facts: Facts) -> Iterator[Finding]:
    for each in facts.answering:
        for what, used in _used_disks(each):
            of_disk: dict[str, Value] = {"broker": each.label, "what": what, "percent": round(used)}
            if used >= _refusing(each):
                yield problem(Kind.DISK_REFUSES, _about(each), **of_disk)
            elif used >= each.setting("diskSpaceCleanForciblyRatio", DISK_CLEAN_FORCIBLY):
                yield warning(Kind.DISK_CLEANS, _about(each), **of_disk)
            elif used >= each.setting("diskMaxUsedSpaceRatio", DISK_USED_MAX):
                yield warning(Kind.DISK_EXPIRES, _about(each), **of_disk)


def _used_disks(broker: BrokerFacts) -> Iterator[tuple[Word, float]]:
    """How much of each disk is used, in percent; those of which nothing is known are left out."""
    for name, what in _DISKS:
        ratio = broker.number(name)
        if ratio is not None and ratio >= 0:
            yield what, ratio * 100


def _refusing(broker: BrokerFacts) -> float:
    """How full a disk may be, in percent, until the broker refuses sends."""
    return broker.setting("diskSpaceWarningLevelRatio", DISK_WARNING_LEVEL)


def sends(facts: Facts) -> Iterator[Finding]:
    for each in facts.masters:
        about, label, name = _about(each), each.label, each.key.name
        permission = int(each.setting("brokerPermission", PERM_READ | PERM_WRITE))
        for bit, kind in ((PERM_WRITE, Kind.SENDS_FORBIDDEN), (PERM_READ, Kind.PULLS_FORBIDDEN)):
            if not permission & bit:
                yield problem(kind, about, broker=label, permission=permission, name=name)
        if name in facts.write_perms_taken:
            yield problem(Kind.WRITE_PERM_TAKEN, about, broker=label, name=name)
        if each.send is not None and not each.send.is_taken and permission & PERM_WRITE:
            yield _refusal(each, each.send)
        wait_ms = each.number("sendThreadPoolQueueHeadWaitTimeMills")
        if wait_ms is not None and wait_ms >= SEND_WAIT_MAX_MS:
            yield warning(Kind.SENDS_WAIT, about, broker=label, milliseconds=round(wait_ms))
        behind = each.number("dispatchBehindBytes")
        if behind is not None and behind > DISPATCH_BEHIND_MAX:
            megabytes = _megabytes(behind)
            yield warning(Kind.DISPATCH_BEHIND, about, broker=label, megabytes=megabytes)


def _refusal(broker: BrokerFacts, send: SendAnswer) -> Finding:
    """Why a broker refuses a send.

    The code SERVICE_NOT_AVAILABLE has three reasons, and brokers list them all.
    Source: SendMessageProcessor.handlePutMessageResult, DefaultMessageStore.checkStoreStatus.
    """
    about = _about(broker)
    given: dict[str, Value] = {"broker": broker.label, "code": send.code}
    if send.code != ResponseCode.SERVICE_NOT_AVAILABLE:
        return problem(Kind.SEND_REFUSED, about, **given, remark=send.remark)
    for what, used in _used_disks(broker):
        limit = _refusing(broker)
        if used >= limit:
            return problem(
                Kind.SEND_REFUSED_DISK,
                about,
                **given,
                what=what,
                percent=round(used),
                limit=round(limit),
            )
    if broker.config.get("brokerRole") == "SLAVE":
        return problem(Kind.SEND_REFUSED_SLAVE, about, **given)
    return problem(Kind.SEND_REFUSED_STORE, about, **given, remark=send.remark)


def health(facts: Facts) -> Iterator[Finding]:
    for each in facts.answering:
        for missing in each.not_ready or ():
            yield problem(Kind.NOT_READY, _about(each), broker=each.label, missing=missing)
        if each.loop_lag_s is not None and each.loop_lag_s > LOOP_LAG_MAX_S:
            seconds = f"{each.loop_lag_s:.2g}"
            yield warning(Kind.LOOP_LATE, _about(each), broker=each.label, seconds=seconds)


_PATHS: Final[Mapping[str, Word]] = {
    "sends": Word.SENDS,
    "batches": Word.BATCHES,
    "deliveries": Word.DELIVERIES,
    "holds": Word.HOLDS,
    "wakes": Word.WAKES,
}
_COUNTS: Final = re.compile(r"taken (\d+), left (\d+), failed (\d+)")


def fast_paths(facts: Facts) -> Iterator[Finding]:
    for each in facts.answering:
        for path, what in _PATHS.items():
            match = _COUNTS.fullmatch(each.runtime.get(TROUBLE_KEY + path, ""))
            if match is None:
                continue
            taken, left, failed = map(int, match.groups())
            given: dict[str, Value] = {"broker": each.label, "path": what}
            if failed:
                yield warning(Kind.EXTENSION_FAILS, _about(each), **given, count=failed)
            else:
                yield warning(
                    Kind.EXTENSION_UNUSED, _about(each), **given, taken=taken, total=taken + left
                )


def health_address(config: Mapping[str, str], address: str) -> str:
    """Where a broker serves metrics and health, `host:port`; "": nowhere that is known from here.

    Args:
      address: the `host:port` that it advertises.
    """
    port = config.get("metricsPromExporterPort", "")
    is_number = port.isascii() and port.isdecimal() and len(port) <= 5
    if config.get("metricsExporterType") not in ("PROM", "2") or not is_number:
        return ""
    if not 0 < int(port) < 65_536:
        return ""  # 0: a free port, which no key tells
    listens = join_address(config.get("metricsPromExporterHost") or "0.0.0.0", int(port))
    kind = address_kind(listens)
    if kind == "any":
        return join_address(host_of(address), int(port))
    if kind == "loopback" and address_kind(address) != "loopback":
        return ""  # from here this would be our own machine
    return listens


_RUNTIME: Final = re.compile(
    r"\[ (\d{1,9}) days, (\d{1,2}) hours, (\d{1,2}) minutes, (\d{1,2}) seconds \]"
)


def clock_reading(
    runtime: Mapping[str, str], asked_ms: int, answered_ms: int
) -> ClockReading | None:
    """How far a broker's clock is ahead of ours.

    A broker tells when it started and for how long it has run, in whole seconds; both come from its
    wall clock, and their sum is its time.

    Args:
      runtime: its runtime information.
      asked_ms, answered_ms: our time before the request and after the answer, ms since 1970.

    Returns: None if it does not tell both.
    Source: StoreStatsService.getRuntimeInfo of 4.9.7 and 5.5.0.
    """
    match = _RUNTIME.fullmatch(runtime.get("runtime", ""))
    try:
        boot_ms = int(runtime["bootTimestamp"])
    except (KeyError, ValueError):
        return None
    if match is None:
        return None
    days, hours, minutes, seconds = map(int, match.groups())
    now_ms = boot_ms + 1000 * (86_400 * days + 3_600 * hours + 60 * minutes + seconds)
    return ClockReading(now_ms - answered_ms, now_ms + 999 - asked_ms)
