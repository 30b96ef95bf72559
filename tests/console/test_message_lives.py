"""The page of a message in each outcome, made by real clients on a broker of our own."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import anyio
import pytest

from tests.kit.lives import CASES, CONFIG, Case, play
from trocket.testing import Broker

from .page_lives import PageLives
from .running import Browser, logged_in, running_console

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(config=CONFIG) as running:
        yield running


@pytest.fixture(scope="module")
def browser(broker: Broker) -> Iterator[Browser]:
    with running_console(broker.url) as (console, browser):
        yield logged_in(console, browser)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_each_outcome_is_on_the_page(broker: Broker, browser: Browser, case: Case) -> None:
    name = f"T{uuid.uuid4().hex[:8]}"
    anyio.run(play, broker.url, case, name, PageLives(browser), backend="trio")
