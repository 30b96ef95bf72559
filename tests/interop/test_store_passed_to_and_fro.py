"""Our broker and Apache's, 5.5.0 and 4.9.7, go on with each other's stores, message for message.

Four chains (`store_chain`) run side by side, since most of their time is spent waiting for JVMs;
each test judges one moment of one chain by one check of `store_differ`, as the harness does.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from trocket.interop.maven import fetch_jars
from trocket.interop.store_chain import FREE_BYTES_MIN, MOMENTS, SIZES, Chain, Visit
from trocket.interop.store_differ import CHECKS

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("java")]

VERSIONS = ["5.5.0", "4.9.7"]
TIMEOUT_S = 300.0


Started = dict[tuple[str, str], Future]


@pytest.fixture(scope="module")
def chains(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    """All chains, under way; those with default sizes only where there is room."""
    folder = tmp_path_factory.mktemp("chains")
    started: Started = {}
    has_room = shutil.disk_usage(folder).free >= FREE_BYTES_MIN
    for version in VERSIONS:
        fetch_jars(version, "server")
    with ThreadPoolExecutor(len(VERSIONS) * len(SIZES)) as pool:
        for sizes in SIZES if has_room else ["small files"]:
            for version in VERSIONS:
                chain = Chain(version, sizes, folder / f"{version}-{sizes.replace(' ', '-')}")
                started[version, sizes] = pool.submit(chain.run)
        yield started
    shutil.rmtree(folder)  # 8 GiB, and others come after


@pytest.fixture(params=[(version, sizes) for version in VERSIONS for sizes in SIZES], ids=" ".join)
def chain(request: pytest.FixtureRequest, chains: Started) -> Chain:
    """One chain that has come to its end."""
    under_way = chains.get(request.param)
    if under_way is None:
        message = f"files of default size need {FREE_BYTES_MIN >> 30} GiB of free disk"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    finished: Chain = under_way.result(TIMEOUT_S)
    return finished


@pytest.fixture(params=MOMENTS)
def visit(request: pytest.FixtureRequest, chain: Chain) -> Visit:
    """What one broker said when it had opened the other's store."""
    return chain.visits[request.param]


@pytest.mark.parametrize("what", CHECKS)
def test_nothing_differs(what: str, chain: Chain, visit: Visit) -> None:
    assert CHECKS[what](chain, visit) == []
