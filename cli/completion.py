"""Completion of names in the shell: topics and groups of the cluster, and profiles.

A shell waits for it, so a cluster has a second to answer; an error completes nothing.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Final

import typer

from . import profiles

if TYPE_CHECKING:
    from ..client import Admin

TIMEOUT_S: Final = 1.0
"""How long a completion may take."""

DEFAULT_URL: Final = "127.0.0.1:9876"
"""Default address of the name server."""


def topic_names(context: typer.Context, incomplete: str) -> list[str]:
    """The topics that begin with what is typed."""
    return _beginning(incomplete, _ask(context, lambda admin: admin.topics()))


def group_names(context: typer.Context, incomplete: str) -> list[str]:
    """The groups that begin with what is typed."""
    return _beginning(incomplete, _ask(context, lambda admin: admin.groups()))


def profile_names(incomplete: str) -> list[str]:
    """The profiles that begin with what is typed."""
    try:
        return _beginning(incomplete, profiles.load(profiles.path_of(os.environ)).urls)
    except profiles.ProfileError:
        return []


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if name.startswith(incomplete))


def _ask(
    context: typer.Context, verb: Callable[[Admin], Awaitable[Iterable[str]]]
) -> Iterable[str]:
    """The answer of the cluster that the command line names; nothing if it fails."""
    import anyio

    from ..client import Admin, ClientError
    from .clients import new_client

    given: str | None = context.params.get("url")
    logging.getLogger("trocket").addHandler(logging.NullHandler())
    names: list[str] = []

    async def ask(url: str) -> None:
        with anyio.move_on_after(TIMEOUT_S):
            async with new_client(url, TIMEOUT_S) as client, Admin(client) as admin:
                names.extend(await verb(admin))

    try:
        url = given or profiles.chosen_url(os.environ.get("ROCKETMQ_URL"), os.environ)
        anyio.run(ask, url or DEFAULT_URL, backend="trio")
    except (ClientError, profiles.ProfileError, OSError, ExceptionGroup):
        return []
    return names
