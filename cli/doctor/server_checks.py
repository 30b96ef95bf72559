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
from .facts import MASTER_ID, BrokerFacts, BrokerKey, ClockReading, Facts, GroupFacts
from .findings import Finding, problem, some, warning

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
    all_failed = len(failed) == len(facts.name_servers)
    for each in failed:
        advice = (
            "Check that a name server runs there, that --url has its port (9876, if nothing else "
            "was configured), and that no firewall is between"
        )
        if all_failed:
            yield problem(f"{each.address} does not work as a name server: {each.error}", advice)
        else:
            text = f"{each.address} does not work as a name server: {each.error}"
            yield warning(f"{text}. Clients use the others", advice)
    for each in facts.name_servers:
        if each.warning:
            yield problem(
                f"{each.address} warns: {each.warning}",
                "Give each broker its own brokerName, or a master and its slaves different "
                "brokerIds: with the same name and id they replace each other in every route",
            )
    lists = {each.address: each.brokers for each in facts.name_servers if not each.error}
    if len(lists) < 2:
        return
    for key in sorted({key for brokers in lists.values() for key in brokers}):
        at = {address: brokers.get(key) for address, brokers in lists.items()}
        if len(set(at.values())) > 1:
            each_text = ", ".join(f"{ns}: {broker or 'unknown'}" for ns, broker in at.items())
            yield warning(
                f"the name servers do not agree about {_key_text(key)} ({each_text})",
                "Let namesrvAddr of every broker list all name servers. If the addresses differ, "
                "two brokers have the same name and id",
            )


def _key_text(key: BrokerKey) -> str:
    return key.name if key.broker_id == MASTER_ID else f"{key.name} slave {key.broker_id}"


def registered(facts: Facts) -> Iterator[Finding]:
    if not facts.brokers:
        yield problem(
            "no broker is registered at the name server",
            "Start one, with namesrvAddr (or -n) set to this name server; its log tells whether "
            "the registration worked",
        )
    ids: dict[str, set[int]] = {}
    for each in facts.brokers:
        ids.setdefault(each.key.name, set()).add(each.key.broker_id)
    for name in sorted(ids):
        if MASTER_ID not in ids[name]:
            yield problem(
                f"{name} has no master, so nothing can be sent to it",
                "Start its master, or promote a slave",
            )


def addresses(facts: Facts) -> Iterator[Finding]:
    for each in facts.brokers:
        kind = address_kind(each.address)
        if kind == "loopback" and not _is_local(facts):
            yield problem(
                f"{each.label} advertises an address by which every client means its own machine",
                "Set brokerIP1 in its broker.conf to an address that clients reach, and restart it",
            )
        elif kind == "any":
            yield problem(
                f"{each.label} advertises an invalid address",
                "Set brokerIP1 in its broker.conf to an address that clients reach, and restart it",
            )
        elif each.error:
            yield problem(
                f"{each.label} cannot be reached at the address that it advertises: {each.error}",
                _ADVICE_BY_KIND.get(kind, _ADVICE),
            )
        else:
            yield from _identity(each)


_ADVICE: Final = (
    "If it is stopped, start it. Otherwise open this port, and the one two below, to clients, or "
    "set brokerIP1 to an address that they reach"
)
_ADVICE_BY_KIND: Final[Mapping[str, str]] = {
    "container": (
        "This looks like an address inside a container's network: publish the ports 10911 and "
        "10909, set brokerIP1 to the host's address, and restart the broker"
    ),
    "link-local": "Set brokerIP1 to an address that clients reach: this one is of one network card",
}


def _identity(broker: BrokerFacts) -> Iterator[Finding]:
    name = broker.config.get("brokerName", broker.key.name)
    number = broker.config.get("brokerId", str(broker.key.broker_id))
    if name != broker.key.name or (number != str(broker.key.broker_id)):
        yield problem(
            f"{broker.label} is another broker: {name}, brokerId {number}. Two brokers advertise "
            "the same address",
            "Give each broker its own brokerIP1 or listenPort",
        )


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
            yield warning(
                f"{each.label} did not answer {request}: {reason}",
                "Some checks know less about it. If it was stopped or restarted just now, try "
                "again; otherwise see its log",
            )


# Clocks, versions, roles


def clocks(facts: Facts) -> Iterator[Finding]:
    for each in facts.answering:
        if each.clock is None:
            continue
        low, high = each.clock
        off_ms = low if low > 0 else -high if high < 0 else 0
        if off_ms < CLOCK_WARNING_MS:
            continue
        direction = "ahead of" if low > 0 else "behind"
        make = problem if off_ms >= CLOCK_PROBLEM_MS else warning
        yield make(
            f"the clock of {each.label} is {off_ms // 1000} s or more {direction} this machine's",
            "Let NTP set both clocks: delivery times, ages of messages and the expiry of files are "
            "wrong by this difference",
        )


def versions(facts: Facts) -> Iterator[Finding]:
    names: dict[str, list[str]] = {}
    for each in facts.answering:
        version = each.runtime.get("brokerVersionDesc", "")
        if version:
            names.setdefault(version, []).append(_key_text(each.key))
    if len(names) > 1:
        each_text = "; ".join(f"{version}: {some(names[version])}" for version in sorted(names))
        yield warning(
            f"brokers have different versions ({each_text})",
            "Bring them to one version: clients may be refused by some of them what others do",
        )
    for group in facts.groups:
        yield from _client_versions(group)


def _client_versions(group: GroupFacts) -> Iterator[Finding]:
    kinds: dict[tuple[str, str], list[str]] = {}
    for member in group.members:
        kinds.setdefault((member.language, _major(member.version)), []).append(member.client_id)
    if len(kinds) > 1:
        each_text = "; ".join(
            f"{language} {major}: {some(ids)}" for (language, major), ids in sorted(kinds.items())
        )
        yield warning(
            f"members of the group {group.name} are different clients ({each_text})",
            "They divide the queues among themselves, which works only if all do it in the same "
            "way: use one client for all of them",
        )


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
            yield warning(
                f"{master.label} is a SYNC_MASTER and has no slave",
                "Start its slave. Until then messages have one copy, and sends are refused or "
                "answered with SLAVE_NOT_AVAILABLE (in 5.x, only with inSyncReplicas above 1)",
            )
        end = master.number("commitLogMaxOffset")
        for slave in mine:
            slave_end = slave.number("commitLogMaxOffset")
            if end is None or slave_end is None:
                continue
            if end - slave_end > SLAVE_BEHIND_MAX:
                yield warning(
                    f"{slave.label} is {(end - slave_end) / 1e6:,.0f} MB behind its master",
                    "Check that it reaches the master's haListenPort at brokerIP2, and that its "
                    "disk and network are fast enough",
                )


# Disk, sends, health


def disks(facts: Facts) -> Iterator[Finding]:
    for each in facts.answering:
        for name, what in (
            ("commitLogDiskRatio", "commit log"),
            ("consumeQueueDiskRatio", "consume queues"),
        ):
            ratio = each.number(name)
            if ratio is None or ratio < 0:
                continue
            used = ratio * 100
            of_disk = f"the disk with the {what} of {each.label} is {used:.0f} % full"
            if used >= each.setting("diskSpaceWarningLevelRatio", DISK_WARNING_LEVEL):
                yield problem(
                    f"{of_disk}: sends are refused",
                    "Free space, enlarge the disk, or lower fileReservedTime",
                )
            elif used >= each.setting("diskSpaceCleanForciblyRatio", DISK_CLEAN_FORCIBLY):
                yield warning(
                    f"{of_disk}: the oldest messages are deleted, however young they are",
                    "Free space, enlarge the disk, or lower fileReservedTime",
                )
            elif used >= each.setting("diskMaxUsedSpaceRatio", DISK_USED_MAX):
                yield warning(
                    f"{of_disk}: expired files are deleted at any hour",
                    "Free space, enlarge the disk, or lower fileReservedTime",
                )


def sends(facts: Facts) -> Iterator[Finding]:
    for each in facts.masters:
        permission = int(each.setting("brokerPermission", PERM_READ | PERM_WRITE))
        for bit, what in ((PERM_WRITE, "sends"), (PERM_READ, "pulls")):
            if not permission & bit:
                yield problem(
                    f"{each.label} refuses all {what} (brokerPermission={permission})",
                    f"If that is not meant: trocket broker config {each.key.name} --set "
                    "brokerPermission=6",
                )
        if each.key.name in facts.write_perms_taken:
            yield problem(
                f"the name server hides {each.label} from producers: its write permission was "
                "taken away",
                f"If that is not meant: trocket broker add-write-perm {each.key.name}",
            )
        if each.send_refusal and permission & PERM_WRITE:
            yield problem(
                f"{each.label} refuses a send: {each.send_refusal}", "See its log for the reason"
            )
        wait_ms = each.number("sendThreadPoolQueueHeadWaitTimeMills")
        if wait_ms is not None and wait_ms >= SEND_WAIT_MAX_MS:
            yield warning(
                f"sends to {each.label} wait for {wait_ms:.0f} ms, and are refused as it is busy",
                "Its disk is too slow, or it has too much to do: add brokers, or a faster disk",
            )
        behind = each.number("dispatchBehindBytes")
        if behind is not None and behind > DISPATCH_BEHIND_MAX:
            yield warning(
                f"{behind / 1e6:,.0f} MB of {each.label} are stored and not yet visible to "
                "consumers",
                "If this stays, its disk is too slow; after a restart it passes",
            )


def health(facts: Facts) -> Iterator[Finding]:
    for each in facts.answering:
        for missing in each.not_ready or ():
            yield problem(f"{each.label} is not ready: {missing}", "See its log")
        if each.loop_lag_s is not None and each.loop_lag_s > LOOP_LAG_MAX_S:
            yield warning(
                f"requests wait {each.loop_lag_s:.2g} s for the event loop of {each.label}",
                "It has too much to do; its log names slow requests",
            )


_PATHS: Final[Mapping[str, str]] = {
    "sends": "sends",
    "batches": "batches",
    "deliveries": "deliveries of delayed messages",
    "holds": "pulls that wait for a message",
    "wakes": "answers to waiting pulls",
}
_COUNTS: Final = re.compile(r"taken (\d+), left (\d+), failed (\d+)")


def fast_paths(facts: Facts) -> Iterator[Finding]:
    for each in facts.answering:
        for path, what in _PATHS.items():
            match = _COUNTS.fullmatch(each.runtime.get(TROUBLE_KEY + path, ""))
            if match is None:
                continue
            taken, left, failed = map(int, match.groups())
            if failed:
                yield warning(
                    f"the C extension of {each.label} failed {failed} times since its start, at "
                    f"{what}",
                    "No stored message is lost: pure Python did it, at more CPU, or the client "
                    "repeated it. Its log has the errors: please report them. TROCKET_PURE=1 "
                    "starts it without the extension",
                )
            else:
                yield warning(
                    f"the C extension of {each.label} did {taken} of {taken + left:,} {what}; pure "
                    "Python did the others, at several times the CPU",
                    "This may be due to the messages: bodies above 64 KiB, properties that are not "
                    "ASCII, or static topics. If they have none of these, please report it",
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
