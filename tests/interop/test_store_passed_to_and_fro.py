"""Our broker and Apache's, 5.5.0 and 4.9.7, go on with each other's stores, message for message.

Four round trips (`store_round_trip`) run concurrently, because they mostly wait for JVMs. Each test
applies one check of `store_differ` to one moment of one round trip, as the harness does.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from trocket.interop.maven import fetch_jars
from trocket.interop.store_differ import CHECKS
from trocket.interop.store_round_trip import FREE_BYTES_MIN, MOMENTS, SIZES, RoundTrip, Visit

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("java")]

VERSIONS = ["5.5.0", "4.9.7"]
TIMEOUT_S = 300.0


Started = dict[tuple[str, str], Future]


@pytest.fixture(scope="module")
def round_trips(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Started]:
    """All round trips, running; those with default sizes only if the disk has room, and those with
    the older broker only with --matrix."""
    versions = VERSIONS if request.config.getoption("--matrix") else VERSIONS[:1]
    folder = tmp_path_factory.mktemp("round_trips")
    started: Started = {}
    has_room = shutil.disk_usage(folder).free >= FREE_BYTES_MIN
    for version in versions:
        fetch_jars(version, "server")
    with ThreadPoolExecutor(len(versions) * len(SIZES)) as pool:
        for sizes in SIZES if has_room else ["small files"]:
            for version in versions:
                round_trip = RoundTrip(
                    version, sizes, folder / f"{version}-{sizes.replace(' ', '-')}"
                )
                started[version, sizes] = pool.submit(round_trip.run)
        yield started
    shutil.rmtree(folder)  # 8 GiB, and others come after


@pytest.fixture(
    params=[
        pytest.param(
            (version, sizes),
            id=f"{version} {sizes}",
            marks=[] if version == VERSIONS[0] else [pytest.mark.matrix],
        )
        for version in VERSIONS
        for sizes in SIZES
    ]
)
def round_trip(request: pytest.FixtureRequest, round_trips: Started) -> RoundTrip:
    """A finished round trip."""
    under_way = round_trips.get(request.param)
    if under_way is None:
        message = f"files of default size need {FREE_BYTES_MIN >> 30} GiB of free disk"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    finished: RoundTrip = under_way.result(TIMEOUT_S)
    return finished


@pytest.fixture(params=MOMENTS)
def visit(request: pytest.FixtureRequest, round_trip: RoundTrip) -> Visit:
    """The answers of a broker that has opened the other's store."""
    return round_trip.visits[request.param]


@pytest.mark.parametrize("what", CHECKS)
def test_nothing_differs(what: str, round_trip: RoundTrip, visit: Visit) -> None:
    assert CHECKS[what](round_trip, visit) == []
