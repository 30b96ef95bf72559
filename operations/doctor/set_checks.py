"""The check of broker sets in controller mode. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from ...remoting.hosts import host_of
from .facts import Facts, SetFacts
from .findings import About, Finding, Pair, Pairs, problem, some, warning
from .kinds import Kind
from .server_checks import address_kind


def sets(facts: Facts) -> Iterator[Finding]:
    """What keeps a set from electing another master, or a member from being elected."""
    for each in facts.sets:
        about = About(broker=each.name)
        yield from _loopback(each, about)
        if not each.replicas:
            yield _without_leader(each, about)
            continue
        yield from _members(each, about)
        yield from _epochs(each, about)


def _without_leader(found: SetFacts, about: About) -> Finding:
    reasons = tuple(
        Pair("" if error.startswith(address) else address, error)
        for address, error in found.errors.items()
    )
    if not reasons:
        return problem(
            Kind.CONTROLLERS_WITHOUT_LEADER, about, broker=found.name, names=some(found.controllers)
        )
    return problem(
        Kind.CONTROLLERS_FAIL,
        about,
        broker=found.name,
        names=some(found.controllers),
        reasons=Pairs(reasons),
    )


def _members(found: SetFacts, about: About) -> Iterator[Finding]:
    in_sync = [each for each in found.replicas if each.is_in_sync]
    alive = [each for each in in_sync if each.is_alive]
    master = found.master
    if master is None or not master.is_alive:
        electable = some(f"{each.controller_id} ({each.address})" for each in in_sync)
        yield problem(Kind.SET_WITHOUT_MASTER, about, broker=found.name, names=electable)
    elif len(alive) == 1:
        yield warning(
            Kind.SET_OF_ONE,
            about,
            broker=found.name,
            address=alive[0].address,
            count=len(found.replicas),
        )


def _epochs(found: SetFacts, about: About) -> Iterator[Finding]:
    """Members that follow an earlier master than the one that has written since."""
    if found.master is None:
        return
    of_master = found.epochs.get(found.master.address)
    if of_master is None or of_master.max_offset <= of_master.start_offset:
        return
    for each in found.replicas:
        mine = found.epochs.get(each.address)
        if mine is not None and mine.epoch < of_master.epoch:
            yield warning(
                Kind.EPOCH_BEHIND,
                about,
                broker=found.name,
                address=each.address,
                epoch=mine.epoch,
                of_master=of_master.epoch,
            )


def _loopback(found: SetFacts, about: About) -> Iterator[Finding]:
    """Loopback addresses among brokers that are on several machines."""
    hosts = {host_of(each.address) for each in found.replicas}
    loopback = [each for each in found.replicas if address_kind(each.address) == "loopback"]
    if len(loopback) < len(found.replicas) and len(hosts) > 1:
        for each in loopback:
            yield problem(Kind.MEMBER_LOOPBACK, about, broker=found.name, address=each.address)
    is_remote = any(address_kind(each.address) != "loopback" for each in found.replicas)
    if is_remote and found.announced and address_kind(found.announced) == "loopback":
        yield problem(Kind.CONTROLLER_LOOPBACK, about, broker=found.name, address=found.announced)
