"""Fixtures of the interop tests: real processes, so each test has its own folder and ports."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.kit.short_polls import shorten_polls
from trocket.interop.apache import ApacheCluster
from trocket.interop.maven import missing_tool
from trocket.interop.peer import Cluster
from trocket.interop.peers import open_cluster

PEER_VARIABLE = "TROCKET_INTEROP_PEER"
"""Which broker the tests run against: trocket (the default), apache-VERSION or another
of `trocket.interop.peers`.

Against Apache's they show that the tests themselves are right.
"""

QUICK_BROKER = {"mappedFileSizeCommitLog": 64 << 20, "waitTimeMillsInSendQueue": 10_000}
"""Keys of broker.conf: small files, and patience with a busy machine."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without Java the interop tests are skipped, and under CI=true they fail."""
    reason = missing_tool()
    if reason is None or os.environ.get("CI") == "true":
        return
    for item in items:
        if item.get_closest_marker("interop"):
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def java() -> None:
    """Java and Maven are there, or the test fails saying what is missing."""
    reason = missing_tool()
    if reason is not None:
        pytest.fail(reason)


@pytest.fixture
def short_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """In brokers of ours that the test starts, receives by gRPC wait for 2 s at most."""
    shorten_polls(monkeypatch)


def new_cluster(folder: Path, keys: Mapping[str, object]) -> Cluster:
    """A stopped cluster of the kind asked for by the environment.

    Args:
      folder: does not exist yet; for this cluster only.
      keys: of broker.conf.
    """
    return open_cluster(os.environ.get(PEER_VARIABLE, "trocket"), folder, keys)


@pytest.fixture
def make_cluster_with(tmp_path: Path) -> Iterator[Callable[[Mapping[str, object]], Cluster]]:
    """Makes stopped clusters of the kind asked for by the environment; all end with the test.

    What it gives takes keys of broker.conf.
    """
    made: list[Cluster] = []

    def make(keys: Mapping[str, object]) -> Cluster:
        made.append(new_cluster(tmp_path / f"cluster-{len(made)}", keys))
        return made[-1]

    yield make
    for cluster in made:
        cluster.close()


@pytest.fixture
def make_cluster(
    make_cluster_with: Callable[[Mapping[str, object]], Cluster],
) -> Callable[[], Cluster]:
    """`make_cluster_with` no keys."""
    return lambda: make_cluster_with({})


@pytest.fixture(scope="module", params=["5.5.0", pytest.param("4.9.7", marks=pytest.mark.matrix)])
def version(request: pytest.FixtureRequest) -> str:
    """Each generation of Apache's; `make test` has 5.5.0 alone."""
    chosen: str = request.param
    return chosen


@pytest.fixture(scope="module")
def broker_keys() -> Mapping[str, object]:
    """Keys of broker.conf of `cluster`; a module may have others."""
    return QUICK_BROKER


@pytest.fixture(scope="module")
def cluster(
    version: str, broker_keys: Mapping[str, object], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ApacheCluster]:
    """A running cluster of Apache's."""
    reason = missing_tool()
    if reason is not None:
        pytest.fail(reason)
    folder = tmp_path_factory.mktemp(f"apache-{version}")
    cluster = ApacheCluster(version, folder, broker_keys=broker_keys)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()
