"""Connected clients: all producers, and the members of some groups.

Brokers tell all producers at once, but the members of one group at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from .asking import Round, asked_at_once
from .members import Members, members
from .sampling import GroupRow

if TYPE_CHECKING:
    from ..client import Admin, ProducerInfo

GROUPS_MAX: Final = 24
"""Groups that are asked for at one time: with a sample and the producers, a broker gets less than
40 requests."""


class ConsumerInfo(msgspec.Struct, frozen=True, rename="camel"):
    """A member of a group.

    Attributes:
      client_id, address, language, version, brokers: as in ClientInfo.
    """

    client_id: str
    group: str
    address: str
    language: str
    version: str
    brokers: tuple[str, ...]


class ConnectedClients(msgspec.Struct, frozen=True, rename="camel"):
    """Clients that are connected.

    Attributes:
      producers: of all groups, one for each broker that they are connected to.
      consumers: of the groups that were asked for, sorted by group and client id.
      error: which brokers did not answer; "": all did.
    """

    producers: tuple[ProducerInfo, ...]
    consumers: tuple[ConsumerInfo, ...]
    error: str


def likely_first(groups: Iterable[GroupRow], known: Iterable[str] = ()) -> list[str]:
    """Names of groups, those first that are likely to have members.

    Args:
      known: of groups that are known to have the members that are looked for.
    """
    wanted = frozenset(known)

    def rank(row: GroupRow) -> tuple[int, str]:
        if row.group in wanted:
            return 0, row.group
        if row.out_rate or row.lag:
            return 1, row.group
        return 2 if row.has_offsets else 3, row.group

    return [row.group for row in sorted(groups, key=rank)]


async def connected_clients(admin: Admin, groups: Sequence[str]) -> ConnectedClients:
    """All producers, and the members of some groups: at most GROUPS_MAX.

    Raises: ServerError; ConnectError.
    """
    brokers = (await admin.cluster()).brokers

    async def ask_members() -> Members:
        return await members(Round(admin.client), brokers, groups[:GROUPS_MAX])

    (producers, error), (found, _) = await asked_at_once(admin.all_producers, ask_members)
    errors = [error, *(f"{name}: {text}" for name, text in sorted(found.errors.items()))]
    consumers = [
        ConsumerInfo(each.client_id, group, each.address, each.language, each.version, each.brokers)
        for group, clients in sorted(found.groups.items())
        for each in clients.clients
    ]
    return ConnectedClients(
        tuple(producers), tuple(consumers), "; ".join(each for each in errors if each)
    )
