"""The console of a stopped broker's store: the pages of the running broker, and nothing changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import anyio
import pytest

from tests.kit.live_copies import copy_running
from tests.kit.lives import soon_traced
from tests.kit.stopped_stores import (
    CONFIG,
    differences,
    shown_pages,
    stamps,
    stock,
)
from trocket.testing import Broker

from .running import logged_in, running_console, store_console

NAME = "broker-a"


class Stopped(NamedTuple):
    """A store.

    Attributes:
      folder: its broker was stopped.
      killed: a copy of what a kill would have left.
      conf: of its broker.
      pages: what a console showed before.
    """

    folder: Path
    killed: Path
    conf: Path
    pages: dict[str, Any]


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Stopped:
    folder = tmp_path_factory.mktemp("broker")
    config = {"brokerName": NAME, **CONFIG}
    conf = folder / "broker.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in config.items()))
    with Broker(folder=folder, config=config) as broker:
        with soon_traced():
            anyio.run(stock, broker.url)
        with running_console(broker.url) as (console, browser):
            pages = shown_pages(logged_in(console, browser).tree)
        copy_running(folder / "store", folder / "killed")
    return Stopped(folder / "store", folder / "killed", conf, pages)


def pages_of(folder: Path, conf: Path | None) -> dict[str, Any]:
    """What a console of a store shows; nothing in its folder changes."""
    before = stamps(folder)
    with store_console(folder, conf) as (console, browser):
        pages = shown_pages(logged_in(console, browser).tree)
    assert stamps(folder) == before
    return pages


@pytest.mark.parametrize("way", ["stopped", "killed"])
def test_its_pages_are_those_of_the_running_broker(stopped: Stopped, way: str) -> None:
    folder = stopped.folder if way == "stopped" else stopped.killed
    pages = pages_of(folder, stopped.conf)
    assert len(pages) > 40
    assert "\n".join(differences(stopped.pages, pages)) == ""
