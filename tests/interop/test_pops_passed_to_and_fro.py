"""Our broker and Apache's go on with each other's half-popped messages."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from trocket.interop.maven import fetch_jars
from trocket.interop.pop_round_trip import CHECKS, ENDINGS, MOMENTS, PopRoundTrip

from ..kit.matrix import first_of

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("java")]

TIMEOUT_S = 300.0

Started = dict[str, "Future[PopRoundTrip]"]


@pytest.fixture(scope="module")
def round_trips(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Started]:
    """A round trip with clean stops and, with --matrix, one with kills, running."""
    endings = ENDINGS if request.config.getoption("--matrix") else ENDINGS[:1]
    folder = tmp_path_factory.mktemp("pops")
    fetch_jars("5.5.0", "server")
    with ThreadPoolExecutor(len(endings)) as pool:
        yield {
            ending: pool.submit(PopRoundTrip("5.5.0", ending, folder / ending).run)
            for ending in endings
        }


@pytest.mark.parametrize("what", CHECKS)
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("ending", first_of(ENDINGS))
def test_nothing_is_lost_or_repeated(
    ending: str, moment: str, what: str, round_trips: Started
) -> None:
    record = round_trips[ending].result(TIMEOUT_S).record
    assert CHECKS[what](record, moment) == []
