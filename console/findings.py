"""Findings of the doctor, collected again while there are viewers, and kept between."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from ..client import Client
from ..common.texts import one_line
from ..operations.doctor.checks import judge
from ..operations.doctor.facts import Facts
from ..operations.doctor.findings import About, Pair, Pairs, Severity, Value, problem
from ..operations.doctor.findings import Finding as Found
from ..operations.doctor.kinds import Kind
from ..operations.doctor.looking import Doctor
from ..operations.watch import Watch

INTERVAL_S: Final = 120.0
"""Between two collections while there are viewers: each asks a broker up to 28 requests."""
LINGER_S: Final = 10.0
"""How long a collection stays wanted after a page was shown."""


class Finding(msgspec.Struct, frozen=True, rename="camel"):
    """Something that is wrong.

    Attributes:
      check: the name of the check that found it.
      severity: "warning" or "problem".
      kind: the name of its kind, by which the texts of a language have its sentences; "": it has
        them in English only.
      values: of these sentences.
      text, advice: the sentences in English; "": there is no advice.
      page, query: the page with the cause; "": there is none.
    """

    check: str
    severity: str
    kind: str
    values: dict[str, Value]
    text: str
    advice: str
    page: str
    query: dict[str, str]


class Findings:
    """The newest findings, of one doctor for all viewers.

    Args:
      client: open.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._doctor = Doctor(client)
        self._groups_of: dict[str, set[str]] = {}
        self._watch: Watch[tuple[Finding, ...]] = Watch(
            self._look, interval_s=INTERVAL_S, linger_s=LINGER_S
        )

    def latest(self) -> tuple[Finding, ...] | None:
        """The newest ones, the worst first; None: they are being collected.

        A call has them collected again in the background.
        """
        self._watch.want()
        last = self._watch.last
        if last is None:
            return None
        if last.error is not None:
            return (_shown("cluster", problem(Kind.NO_NAME_SERVER, reasons=_reasons(last.error))),)
        return last.get()

    async def run(self) -> None:
        """Collect findings while there are viewers, until it is cancelled."""
        await self._watch.run()

    @property
    def client_ids(self) -> Collection[str]:
        """Ids of the members of groups that the doctor saw last."""
        return self._groups_of.keys()

    def groups_of(self, client: str) -> set[str]:
        """The groups of the members whose ids have a text in them, as the doctor saw them last."""
        text = client.lower()
        found = (groups for each, groups in self._groups_of.items() if text in each.lower())
        return set().union(*found)

    async def _look(self) -> tuple[Finding, ...]:
        facts = await self._doctor.look()
        groups_of: dict[str, set[str]] = {}
        for group in facts.groups:
            name = self._client.without_namespace(group.name)
            for member in group.members:
                groups_of.setdefault(member.client_id, set()).add(name)
        self._groups_of = groups_of
        return findings_of(facts)


def findings_of(facts: Facts) -> tuple[Finding, ...]:
    """What is wrong in a cluster, the worst first. Pure."""
    found = [
        (finding.severity, _shown(result.check, finding))
        for result in judge(facts)
        for finding in result.findings
        if finding.severity >= Severity.WARNING
    ]
    return tuple(each for _, each in sorted(found, key=lambda pair: -pair[0]))


def _shown(check: str, finding: Found) -> Finding:
    page, query = cause_of(check, finding.about)
    return Finding(
        check=check,
        severity=finding.severity.text,
        kind=finding.kind.name,
        values=dict(finding.values),
        text=finding.text,
        advice=finding.advice,
        page=page,
        query=query,
    )


def _reasons(error: Exception) -> Pairs:
    return Pairs((Pair("", one_line(error)),))


_LISTS: Final = {"topics": "topics", "subscriptions": "groups", "consumers": "groups"}
"""The page of a check's findings that are about several; of other checks it is the brokers'."""


def cause_of(check: str, about: About) -> tuple[str, dict[str, str]]:
    """The page where the cause of a finding is seen, and its query."""
    if about.group:
        return "group", {"group": about.group}
    if about.topic:
        return "topic", {"topic": about.topic}
    if about.broker:
        return "broker", {"name": about.broker}
    return _LISTS.get(check, "brokers"), {}


def about_broker(findings: Iterable[Finding], name: str) -> tuple[Finding, ...]:
    """The findings whose cause is one broker."""
    return tuple(
        each for each in findings if (each.page, each.query.get("name")) == ("broker", name)
    )
