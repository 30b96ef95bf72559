"""The page of connected clients: producers, and members of groups, also by client id."""

from __future__ import annotations

import msgspec

from ...client import ProducerInfo
from ...operations.clients import (
    GROUPS_MAX,
    ConsumerInfo,
    connected_clients,
    likely_first,
)
from .page import Ask, Page


class Clients(msgspec.Struct, frozen=True, rename="camel"):
    """Connected clients.

    Attributes:
      client: the field `client`: a part of client ids; "": all clients.
      producers: of all groups, one for each broker that they are connected to.
      consumers: members of the groups that were asked for.
      first: number of the first group that was asked for, from 0.
      asked, groups: how many groups were asked for, and how many there are.
      next: the field `from` of the page of the groups after these; None: there are none.
      error: which brokers did not answer; "": all did.
    """

    client: str
    producers: tuple[ProducerInfo, ...]
    consumers: tuple[ConsumerInfo, ...]
    first: int
    asked: int
    groups: int
    next: int | None
    error: str


async def clients(ask: Ask) -> Clients:
    """Every producer, and the members of the groups whose turn it is."""
    client = ask.query.get("client", "").strip()
    first = ask.number("from", 0)
    names = await group_names(ask, client)
    asked = names[first : first + GROUPS_MAX]
    found = await connected_clients(ask.admin, asked)
    after = first + len(asked)
    return Clients(
        client=client,
        producers=tuple(each for each in found.producers if _is_part(client, each.client_id)),
        consumers=tuple(each for each in found.consumers if _is_part(client, each.client_id)),
        first=first,
        asked=len(asked),
        groups=len(names),
        next=after if asked and after < len(names) else None,
        error=found.error,
    )


async def group_names(ask: Ask, client: str = "") -> list[str]:
    """All groups, those first that are known to have a client, or are likely to have some."""
    sample = await ask.account.samples.fresh()
    known = ask.account.findings.groups_of(client) if client else ()
    return likely_first(sample.groups if sample else (), known)


async def all_ids(ask: Ask, client: str) -> tuple[str, ...]:
    """Ids of clients that are connected, a client among them if it can be found.

    The members that the doctor saw are known; only for what may be the id of another one are the
    members of groups asked for.
    """
    known = set(ask.account.findings.client_ids)
    if client not in known and "@" in client:
        found = await connected_clients(ask.admin, await group_names(ask))
        known |= {each.client_id for each in found.producers}
        known |= {each.client_id for each in found.consumers}
    return tuple(sorted(known))


def _is_part(text: str, client_id: str) -> bool:
    return text.lower() in client_id.lower()


PAGES = (Page("clients", clients, table="consumers", needs_broker=True),)
