"""`trocket keys`: the keys of broker.conf, namesrv.conf and controller.conf."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from ..common.config import KnownKey
from ..common.terminal import show
from .session import AsJson, emit, fail


def keys(
    name: Annotated[str, typer.Argument(help="List only keys whose name contains this.")] = "",
    as_json: AsJson = False,
) -> None:
    """List the keys of broker.conf, namesrv.conf and controller.conf: type, default, effect here.

    Without a terminal, print one line per key, separated by tabs.
    """
    rows = [
        (file, key, fact.kind, fact.default, supported.get(key, fact.effect))
        for file, known, supported in _key_tables()
        for key, fact in sorted(known.items())
        if name.lower() in key.lower()
    ]
    if not rows:
        fail(_no_key(name))
    if as_json:
        emit(
            [
                dict(zip(("file", "key", "type", "default", "here"), row, strict=True))
                for row in rows
            ]
        )
    else:
        columns = ("File", "Key", "Type", "RocketMQ's default", "Here")
        show(columns, rows, spare=("File", "Type", "RocketMQ's default"))


def _no_key(name: str) -> str:
    """That no key's name contains a string, with the file that has it, or with similar keys."""
    from difflib import get_close_matches

    from ..common.config import other_file_of

    other = other_file_of(name)
    if other is not None:
        return f"{name} is a key of {other}: it has no effect here"
    known = sorted({key for _, keys, _ in _key_tables() for key in keys})
    near = get_close_matches(name, known, n=3)
    hint = f"; near it are {', '.join(near)}" if near else ""
    return f"no key of broker.conf, namesrv.conf or controller.conf has {name!r} in its name{hint}"


def _key_tables() -> list[tuple[str, Mapping[str, KnownKey], Mapping[str, str]]]:
    """By file: its name, RocketMQ's keys, and the text of each one that is supported."""
    from dataclasses import fields

    from ..broker.settings import config as broker
    from ..common.config import key_of
    from ..controller import config as controller
    from ..namesrv import config as namesrv
    from ..store.config import MessageStoreConfig

    def supported(*configs: Any) -> dict[str, str]:
        return {
            key_of(field): "supported, also while it runs"
            if "live" in field.metadata
            else "supported"
            for config in configs
            for field in fields(config)
        }

    return [
        (
            "broker.conf",
            broker.known_keys(),
            supported(broker.BrokerConfig, MessageStoreConfig),
        ),
        ("namesrv.conf", namesrv.known_keys(), supported(namesrv.NamesrvConfig)),
        ("controller.conf", controller.known_keys(), supported(controller.ControllerConfig)),
    ]
