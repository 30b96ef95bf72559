"""Completion of names in the shell: what a cluster has, and profiles.

A shell waits for it, so a cluster has a second to answer; an error completes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Final

import typer

from . import profiles

TIMEOUT_S: Final = 1.0
"""How long a completion may take."""

DEFAULT_URL: Final = "127.0.0.1:9876"
"""Default address of the name server."""

Completion = Callable[[typer.Context, str], list[str]]
"""Gives the names that begin with what is typed."""


def topic_names(context: typer.Context, incomplete: str) -> list[str]:
    """The topics that begin with what is typed."""
    return _beginning(incomplete, _ask(context, "topics"))


def group_names(context: typer.Context, incomplete: str) -> list[str]:
    """The groups that begin with what is typed."""
    return _beginning(incomplete, _ask(context, "groups"))


def broker_names(context: typer.Context, incomplete: str) -> list[str]:
    """The brokers that begin with what is typed."""
    return _beginning(incomplete, _ask(context, "brokers"))


def cluster_names(context: typer.Context, incomplete: str) -> list[str]:
    """The clusters that begin with what is typed."""
    return _beginning(incomplete, _ask(context, "clusters"))


def member_ids(context: typer.Context, incomplete: str) -> list[str]:
    """The client ids of the members of the group that the command line names."""
    group = context.params.get("group")
    return _beginning(incomplete, _ask(context, "members", group)) if group else []


def profile_names(incomplete: str) -> list[str]:
    """The profiles that begin with what is typed."""
    try:
        return _beginning(incomplete, profiles.load(profiles.path_of(os.environ)).urls)
    except profiles.ProfileError:
        return []


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if name.startswith(incomplete))


def _ask(context: typer.Context, what: str, *words: str) -> Iterable[str]:
    """The names of `what` in the cluster that the command line names; nothing if that fails."""
    from ..remoting.tls_options import TlsSettings
    from .names import Cluster, NamesError
    from .tls_flags import settings_of_flags

    given: str | None = context.params.get("url") or os.environ.get("ROCKETMQ_URL")
    flags = TlsSettings(**settings_of_flags(context.params))
    try:
        url = profiles.chosen_url(given, os.environ) or DEFAULT_URL
        cluster = Cluster.of(url, os.environ, TIMEOUT_S, flags)
        found: list[str] = getattr(cluster, what)(*words)
    except (NamesError, profiles.ProfileError):
        return []
    return found
