"""A console whose pages all have something to show, and a browser: the module's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser as Chromium

from trocket.console.clock import EmbeddedClock
from trocket.testing import Broker

from .sites import CONFIG, open_site
from .windows import Site, chromium


@pytest.fixture(scope="module")
def shown() -> Iterator[Chromium]:
    """Chromium; the test is skipped where there is none."""
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def site(shown: Chromium) -> Iterator[Site]:
    """A console of a broker of our own."""
    with (
        Broker(config=CONFIG) as broker,
        open_site(broker.url, clock=EmbeddedClock(broker)) as site,
    ):
        yield site
