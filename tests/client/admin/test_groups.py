"""Consumer groups: created, shown, deleted."""

from __future__ import annotations

import pytest

from trocket.client import Admin, ConfigurationError, NotFoundError

from .conftest import Do, send


def test_a_group_is_created_shown_and_deleted_with_its_offsets(do: Do) -> None:
    async def verb(admin: Admin) -> None:
        await admin.create_topic("T", 1)
        await admin.create_group("g", retry_max_times=3)
        assert await admin.groups() == ["g"]
        assert (await admin.group("g")).settings["broker-a"].retry_max_times == 3
        await send(admin, "T", "a", "b")
        await admin.reset_offset("g", "T", to="end")
        await admin.delete_group("g")
        assert await admin.groups() == []
        assert (await admin.lag("g", "T")).queues[0].committed is None
        for gone in (admin.group("g"), admin.delete_group("g"), admin.lag("g")):
            with pytest.raises(NotFoundError, match="no broker knows the consumer group g"):
                await gone

    do(verb)


def test_an_unknown_setting_of_a_group_is_refused_with_those_there_are(do_once: Do) -> None:
    async def verb(admin: Admin) -> None:
        with pytest.raises(ConfigurationError, match=r"retries; there are .*retry_max_times"):
            await admin.create_group("g", retries=3)

    do_once(verb)
