"""pytest's fixtures: a RocketMQ for a test session, topics and groups for single tests.

::

    rocketmq_broker    trocket.testing.Broker, one for the whole session
    rocketmq_cluster   its `url` and `namesrv_address`; with --rocketmq=URL those of a real cluster
    rocketmq_topic     a new topic, deleted after the test
    rocketmq_group     a name that no other consumer group has

pytest loads this in every session of an environment that has trocket, so nothing is imported here
that a session without these fixtures does not need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .testing.broker import Broker
    from .testing.remote_cluster import RemoteCluster

OPTION = "--rocketmq"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--rocketmq=URL`."""
    parser.getgroup("rocketmq").addoption(
        OPTION,
        metavar="URL",
        dest="rocketmq_url",
        help="run tests of rocketmq_cluster against this cluster, such as "
        "rocketmq://127.0.0.1:9876, and not against the embedded broker",
    )


@pytest.fixture(scope="session")
def rocketmq_broker() -> Iterator[Broker]:
    """A name server and a broker in this process; see `trocket.testing.Broker`."""
    try:
        from .testing.broker import Broker
    except ModuleNotFoundError as error:
        pytest.fail(f"rocketmq_broker needs {error.name}: pip install 'trocket[broker]'")
    with Broker() as broker:
        yield broker


@pytest.fixture(scope="session")
def rocketmq_cluster(request: pytest.FixtureRequest) -> Broker | RemoteCluster:
    """The cluster under test: the embedded broker, or that of `--rocketmq`.

    Both have `url`, `namesrv_address`, `create_topic` and `delete_topic`.
    """
    url = request.config.getoption("rocketmq_url")
    if url is None:
        broker: Broker = request.getfixturevalue("rocketmq_broker")
        return broker
    from .testing.remote_cluster import RemoteCluster

    try:
        return RemoteCluster(url)
    except ValueError as error:
        raise pytest.UsageError(f"{OPTION}: {error}") from error


@pytest.fixture
def rocketmq_topic(
    request: pytest.FixtureRequest, rocketmq_cluster: Broker | RemoteCluster
) -> Iterator[str]:
    """The name of a new topic with 8 queues on `rocketmq_cluster`; it is deleted after the test."""
    from .testing.names import unique_name

    name = unique_name("topic", request.node.name)
    rocketmq_cluster.create_topic(name)
    yield name
    rocketmq_cluster.delete_topic(name)


@pytest.fixture
def rocketmq_group(request: pytest.FixtureRequest) -> str:
    """A name that no other consumer group has; its first consumer makes the group."""
    from .testing.names import unique_name

    return unique_name("group", request.node.name)
