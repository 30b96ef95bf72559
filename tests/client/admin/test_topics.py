"""Topics: created, shown, changed, deleted, refused."""

from __future__ import annotations

from typing import Any

import pytest

from trocket.client import Admin, ConfigurationError, RouteNotFoundError, ServerError
from trocket.common.topic_names import TOOLS_GROUP

from .conftest import Do


def test_a_topic_is_created_shown_changed_and_deleted(do: Do) -> None:
    async def verb(admin: Admin) -> None:
        await admin.create_topic("T", 4, attributes={"message.type": "FIFO"})
        assert await admin.topics() == ["T"]
        (on,) = (await admin.topic("T")).brokers
        assert (on.broker_name, on.cluster) == ("broker-a", "DefaultCluster")
        assert (on.read_queues, on.write_queues, on.perm_text) == (4, 4, "RW")
        assert on.attributes == {"message.type": "FIFO"}
        await admin.create_topic("T", 2, read_queues=6, perm=4)
        (on,) = (await admin.topic("T")).brokers
        assert (on.read_queues, on.write_queues, on.perm_text) == (6, 2, "R")
        await admin.delete_topic("T")
        assert await admin.topics() == []
        with pytest.raises(RouteNotFoundError):
            await admin.topic("T")
        with pytest.raises(RouteNotFoundError):
            await admin.delete_topic("T")

    do(verb)


def test_rocketmqs_own_topics_and_groups_are_listed_only_on_demand(do_once: Do) -> None:
    async def verb(admin: Admin) -> None:
        assert (await admin.topics(), await admin.groups()) == ([], [])
        assert {"TBW102", "broker-a", "DefaultCluster"} <= set(await admin.topics(is_all=True))
        assert TOOLS_GROUP in await admin.groups(is_all=True)

    do_once(verb)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"name": "no blanks"}, "illegal character"),
        ({"name": "T", "queues": 0}, "at least one queue"),
        ({"name": "T", "cluster": "nosuch"}, "there are: DefaultCluster"),
    ],
)
def test_a_topic_that_cannot_be_made_is_refused_here(
    do_once: Do, options: dict[str, Any], text: str
) -> None:
    async def verb(admin: Admin) -> None:
        with pytest.raises(ConfigurationError, match=text):
            await admin.create_topic(**options)
        assert await admin.topics() == []

    do_once(verb)


def test_a_refusal_has_the_brokers_text(do_once: Do) -> None:
    async def verb(admin: Admin) -> None:
        with pytest.raises(ServerError, match="conflict with system topic"):
            await admin.create_topic("TBW102")

    do_once(verb)
