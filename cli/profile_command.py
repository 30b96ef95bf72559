"""`trocket profile`: commands that name clusters, so that --url need not be written."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from ..common.terminal import show
from . import profiles
from .completion import profile_names
from .session import AsJson, emit, fail, note_none, usage

app = typer.Typer(
    no_args_is_help=True,
    help="Name clusters, and choose the one that commands use.",
    epilog="Example: trocket profile add prod 'rocketmq://10.0.0.7:9876;10.0.0.8:9876'",
)

Name = Annotated[
    str,
    typer.Argument(metavar="NAME", help="The profile's name.", autocompletion=profile_names),
]


def _load() -> profiles.Profiles:
    try:
        return profiles.load(profiles.path_of(os.environ))
    except profiles.ProfileError as error:
        fail(error)


def _save(new: profiles.Profiles) -> None:
    try:
        profiles.save(profiles.path_of(os.environ), new)
    except profiles.ProfileError as error:
        fail(error)


@app.command("add", epilog="Example: trocket profile add prod rocketmq://10.0.0.7:9876 --use")
def profile_add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The profile's name.")],
    url: Annotated[
        str, typer.Argument(metavar="URL", help="Its name servers, as for --url of all commands.")
    ],
    use: Annotated[bool, typer.Option("--use", help="Use it from now on.")] = False,
) -> None:
    """Add a profile, or give it another URL."""
    from ..remoting.cluster_url import parse_url

    try:
        parse_url(url)
        new = _load().with_url(name, url)
    except (ValueError, profiles.ProfileError) as error:
        usage(str(error))
    _save(new.using(name) if use else new)


@app.command("list", epilog="Example: trocket profile list")
def profile_list(as_json: AsJson = False) -> None:
    """List the profiles; secrets are not shown."""
    loaded = _load()
    rows = [(name, profiles.without_secrets(url), name == loaded.current)
            for name, url in sorted(loaded.urls.items())]  # fmt: skip
    if as_json:
        emit([{"name": name, "url": url, "current": current} for name, url, current in rows])
    else:
        show(["Name", "URL", "In use"], [(n, u, "yes" if c else "") for n, u, c in rows])
    note_none(rows, "there is no profile; add one: trocket profile add NAME URL")


@app.command("use", epilog="Example: trocket profile use prod")
def profile_use(name: Name) -> None:
    """Use a profile in commands without --url, ROCKETMQ_URL and TROCKET_PROFILE."""
    try:
        _save(_load().using(name))
    except profiles.ProfileError as error:
        usage(str(error))


@app.command("remove", epilog="Example: trocket profile remove prod")
def profile_remove(name: Name) -> None:
    """Remove a profile."""
    try:
        _save(_load().without(name))
    except profiles.ProfileError as error:
        usage(str(error))
