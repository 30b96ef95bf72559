"""The life of messages on three brokers, ours and Apache's: each outcome, made by real clients.

Each is learnt twice: by the package, and from the console's page. `make test` has the pages beside
Apache's 5.5.0, which read the same facts by the package. On a broker of ours both are played by
`tests/operations/message_life/test_on_a_broker.py` and `tests/console/test_message_lives.py`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import anyio
import pytest

from tests.console.page_lives import PageLives
from tests.console.running import Browser, logged_in, running_console
from tests.kit.lives import (
    CASES,
    CONFIG,
    NEED_POPS,
    Case,
    passed_over_by_sql,
    play,
    twenty_of_forty_traced,
    twenty_of_forty_untraced,
)
from tests.kit.matrix import some_of
from trocket.interop.peer import Cluster
from trocket.interop.peers import open_cluster

pytestmark = [pytest.mark.interop, pytest.mark.slow]


PEERS = ("trocket", "apache-5.5.0", "apache-4.9.7")
ALIKE = (passed_over_by_sql, twenty_of_forty_traced, twenty_of_forty_untraced)
"""Cases whose facts come from where those of another case come from."""


@pytest.fixture(scope="module", params=some_of(PEERS, lambda name: name == "apache-5.5.0"))
def peer(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """A running cluster."""
    folder = tmp_path_factory.mktemp(request.param) / "cluster"
    cluster = open_cluster(request.param, folder, {**CONFIG, "waitTimeMillsInSendQueue": 10_000})
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


@pytest.mark.matrix  # the page has it from the package, too
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_each_outcome_is_made_by_real_clients(peer: Cluster, case: Case) -> None:
    if peer.label.startswith("apache-4") and case in NEED_POPS:
        pytest.skip("brokers of 4.x have no pops")
    name = f"T{uuid.uuid4().hex[:8]}"
    anyio.run(play, f"rocketmq://{peer.namesrv_address}", case, name, backend="trio")


@pytest.fixture(scope="module")
def browser(peer: Cluster) -> Iterator[Browser]:
    with running_console(peer.namesrv_address) as (console, browser):
        yield logged_in(console, browser)


@pytest.mark.parametrize(
    "case",
    some_of(CASES, lambda case: case not in ALIKE),
    ids=lambda case: case.__name__,
)
def test_each_outcome_is_on_the_page(peer: Cluster, browser: Browser, case: Case) -> None:
    if peer.label.startswith("apache-4") and case in NEED_POPS:
        pytest.skip("brokers of 4.x have no pops")
    name, url = f"T{uuid.uuid4().hex[:8]}", f"rocketmq://{peer.namesrv_address}"
    anyio.run(play, url, case, name, PageLives(browser), backend="trio")
