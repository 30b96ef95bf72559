"""Checks of `trocket doctor`, as a table, and what they come to. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from . import server_checks as of_servers
from . import set_checks as of_sets
from . import topic_checks as of_topics
from .facts import BrokerFacts, Facts
from .findings import Finding, Pair, Pairs, Severity, problem
from .kinds import Kind


class Check(NamedTuple):
    """A row of the table.

    Attributes:
      find: the function.
      fine: what is said when it finds nothing.
      is_possible: whether there are facts to judge.
      unknown: what is said when there are none.
    """

    name: str
    find: Callable[[Facts], Iterable[Finding]]
    fine: str
    is_possible: Callable[[Facts], bool]
    unknown: str = "not checked: no broker answered what this needs"


class Result(NamedTuple):
    """What a check came to.

    Attributes:
      severity: that of the worst finding.
      findings: all, the worst first.
      note: in English, that nothing was found, or why nothing could be judged.
    """

    check: str
    severity: Severity
    findings: tuple[Finding, ...] = ()
    note: str = ""


def judge(facts: Facts) -> list[Result]:
    """Run all checks, in the order of the table.

    Where nothing answers, that is all there is to say: the other checks are left out.
    """
    if not _has_name_server(facts):
        only = CHECKS[0]
        return [Result(only.name, Severity.PROBLEM, (_nothing_answers(facts),))]
    results = [_result(check, facts) for check in CHECKS]
    if facts.answering:
        return results
    return [each for each in results if each.severity is not Severity.SKIPPED]


def _nothing_answers(facts: Facts) -> Finding:
    """One finding for all name servers, each with its reason."""
    found = list(of_servers.name_servers(facts))
    if len(found) == 1:
        return found[0]
    reasons = tuple(
        Pair("" if each.error.startswith(each.address) else each.address, each.error)
        for each in facts.name_servers
    )
    return problem(Kind.NO_NAME_SERVER, reasons=Pairs(reasons))


def _result(check: Check, facts: Facts) -> Result:
    if not check.is_possible(facts):
        return Result(check.name, Severity.SKIPPED, note=check.unknown)
    findings = tuple(sorted(check.find(facts), key=lambda each: -each.severity))
    if not findings:
        return Result(check.name, Severity.OK, note=check.fine)
    return Result(check.name, findings[0].severity, findings)


def _always(facts: Facts) -> bool:
    return True


def _has_name_server(facts: Facts) -> bool:
    return any(not each.error for each in facts.name_servers)


def _has_brokers(facts: Facts) -> bool:
    return bool(facts.brokers)


def _any(fact: Callable[[BrokerFacts], object]) -> Callable[[Facts], bool]:
    """Whether a fact is known about some broker."""
    return lambda facts: any(fact(each) for each in facts.answering)


CHECKS: Final = (
    Check("name servers", of_servers.name_servers, "all answer and agree", _always),
    Check("brokers", of_servers.registered, "all have a master", _has_name_server),
    Check(
        "addresses", of_servers.addresses, "all brokers answer where they say they are",
        _has_brokers,
    ),
    Check(
        "answers", of_servers.answers, "brokers that were reached answered all requests",
        _any(lambda each: True),
    ),
    Check(
        "clocks", of_servers.clocks, "all agree with this machine's within 2 s",
        _any(lambda each: each.clock is not None),
    ),
    Check(
        "versions", of_servers.versions, "the same on all brokers, and in each group",
        _any(lambda each: each.runtime),
    ),
    Check(
        "slaves", of_servers.roles, "none is missing or far behind",
        _any(lambda each: each.config),
    ),
    Check(
        "failover", of_sets.sets, "each set under a controller can elect another master",
        _any(lambda each: each.config),
    ),
    Check("disks", of_servers.disks, "enough space", _any(lambda each: each.runtime)),
    Check(
        "sends", of_servers.sends, "all masters that were reached take them",
        _any(lambda each: each.send is not None or each.config),
    ),
    Check(
        "health", of_servers.health, "all brokers that tell it are ready",
        _any(lambda each: each.not_ready is not None),
        "not checked: no broker serves /health (metricsExporterType=PROM) where it is reached",
    ),
    Check(
        "C extension", of_servers.fast_paths, "no broker tells that it fails or is not used",
        _any(lambda each: each.runtime),
    ),
    Check(
        "topics", of_topics.topics, "queues and permissions are as they should be",
        _any(lambda each: each.topics is not None),
    ),
    Check(
        "subscriptions", of_topics.subscriptions, "the members of each group agree",
        _any(lambda each: each.groups is not None),
    ),
    Check(
        "consumers", of_topics.consumers, "each group with waiting messages has some",
        _any(lambda each: each.groups is not None),
    ),
)  # fmt: skip
"""All checks, in the order in which they are shown."""
