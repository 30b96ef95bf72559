"""Settings of a topic or a group on each broker, before a change and after it."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from ...client import BrokerInfo, ClientError
from ...client.admin.topics import is_own_topic
from ..errors import PageError
from .audited import audited
from .page import Ask, Done

T = TypeVar("T")
Settings = dict[str, bool | int | str | dict[str, str]]

_ATTRIBUTE: Final = re.compile(r"[A-Za-z0-9._]+=[A-Za-z0-9._:/-]+")
"""Requests have them as `+name=value,-name`, so that neither part has a comma or an equals sign,
and the name no sign."""


class BrokerPlan(msgspec.Struct, frozen=True, rename="camel"):
    """The settings of a topic or a group on a broker.

    Attributes:
      before: None: it is not there.
      after: as they are asked for: a broker takes the nearest number that it can serve.
    """

    broker_name: str
    before: Settings | None
    after: Settings


class Clusters(msgspec.Struct, frozen=True):
    """The clusters there are, and the one that a change is for.

    Attributes:
      names: sorted.
      chosen: "": which one is meant is not clear.
      brokers: those of the chosen one.
    """

    names: tuple[str, ...]
    chosen: str
    brokers: tuple[BrokerInfo, ...]

    def check(self) -> None:
        """Raises: PageError: which cluster is meant is not clear."""
        if not self.chosen:
            raise PageError(400, "which_cluster", names=", ".join(self.names))


async def clusters(ask: Ask) -> Clusters:
    """The clusters, of which the field `cluster` chooses one. Raises: PageError; ClientError."""
    view = await ask.admin.cluster()
    chosen = ask.query.get("cluster", "").strip()
    if chosen and chosen not in view.clusters:
        raise PageError(400, "no_cluster", value=chosen, names=", ".join(view.clusters))
    if not chosen and len(view.clusters) == 1:
        chosen = view.clusters[0]
    brokers = tuple(each for each in view.brokers if each.cluster == chosen)
    return Clusters(view.clusters, chosen, brokers)


def wanted_attributes(text: str) -> dict[str, str]:
    """The field `attributes`: `name=value`, with spaces or commas between. Raises: PageError."""
    found: dict[str, str] = {}
    for part in text.replace(",", " ").split():
        name, _, value = part.partition("=")
        if not _ATTRIBUTE.fullmatch(part) or name in found:
            raise PageError(400, "no_attribute", value=part)
        found[name] = value
    return found


def attributes_text(attributes: Mapping[str, str]) -> str:
    """As `wanted_attributes` reads them."""
    return " ".join(f"{name}={value}" for name, value in sorted(attributes.items()))


def attribute_changes(
    before: Iterable[Mapping[str, str]], wanted: Mapping[str, str]
) -> dict[str, str | None]:
    """What to ask brokers for: attributes that are not so everywhere; None: to be taken away.

    A broker refuses to set some attributes once more, so those that are as wanted are left out.

    Args:
      before: of each broker.
    """
    listed = list(before)
    changes: dict[str, str | None] = {
        name: value
        for name, value in wanted.items()
        if not listed or any(each.get(name) != value for each in listed)
    }
    changes.update({name: None for each in listed for name in each if name not in wanted})
    return changes


class Wanted(msgspec.Struct, frozen=True):
    """New settings of a topic or a group, and what is there.

    Attributes:
      before: on each broker that has it.
      after: on each broker of the chosen cluster.
      is_chosen: the settings were chosen; False: the form has those that are there.
    """

    name: str
    clusters: Clusters
    before: dict[str, Settings]
    after: Settings
    is_chosen: bool

    def plan(self) -> tuple[BrokerPlan, ...] | None:
        """What each broker has and would have; None: nothing was chosen yet. Raises: PageError."""
        if not self.is_chosen:
            return None
        self.clusters.check()
        return tuple(
            BrokerPlan(each.name, self.before.get(each.name), self.after)
            for each in self.clusters.brokers
        )


Look = Callable[[Ask, str, Clusters], Awaitable[Mapping[str, T]]]
"""A topic or a group on the brokers of a cluster that have it. Raises: ClientError."""


class Kind(NamedTuple, Generic[T]):
    """Topics or groups, as what settings are of.

    Attributes:
      noun: "topic" or "group": of the field, the page and the names of the changes.
      check: raises ValueError: a name cannot be one.
      look: what brokers have.
      settings: of one broker's, for people.
      exists, missing: keys of the errors.
    """

    noun: str
    check: Callable[[str], object]
    look: Look[T]
    settings: Callable[[T], Settings]
    exists: str
    missing: str

    async def there(self, ask: Ask, *, is_new: bool) -> tuple[str, Clusters, dict[str, T]]:
        """The name, the clusters, and what brokers have.

        Raises: PageError: it is there and should be new, or is not there. ClientError.
        """
        name = ask.text(self.noun)
        try:
            self.check(name)
        except ValueError as error:
            raise PageError(400, "wrong_value", text=error) from None
        chosen = await clusters(ask)
        before = dict(await self.look(ask, name, chosen))
        values = {self.noun: name}
        if is_new and before:
            raise PageError(409, self.exists, **values)
        if not is_new and chosen.chosen and not before:
            raise PageError(404, self.missing, **values, cluster=chosen.chosen)
        return name, chosen, before

    async def carry_out(
        self, ask: Ask, what: str, wanted: Wanted, make: Callable[[], Awaitable[None]]
    ) -> Done:
        """Make the change, with its line in the audit log.

        Args:
          what: the name of the change.
        """
        wanted.clusters.check()
        of = {self.noun: wanted.name, "cluster": wanted.clusters.chosen}
        with audited(ask, what, of, before=wanted.before or None, after=wanted.after) as line:
            await make()
            line.after = await self._after(ask, wanted)
        values = {self.noun: wanted.name, "number": line.number}
        return Done(self.noun, {self.noun: wanted.name}, what, values)

    async def _after(self, ask: Ask, wanted: Wanted) -> Mapping[str, Settings]:
        """The settings as brokers have them now: they may have taken other numbers."""
        try:
            found = await self.look(ask, wanted.name, wanted.clusters)
        except ClientError:
            return {each.name: wanted.after for each in wanted.clusters.brokers}
        return {name: self.settings(each) for name, each in found.items()}


def checked(ask: Ask, field: str) -> str:
    """The name that a deletion is for, which must be there twice. Raises: PageError."""
    name = ask.text(field)
    if ask.text("confirm") != name:
        raise PageError(400, "wrong_name", name=name)
    return name


def check_not_own(topic: str) -> None:
    """Raises: PageError: a topic is one of RocketMQ's own."""
    if is_own_topic(topic):
        raise PageError(400, "own_topic", topic=topic)
