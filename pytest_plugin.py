"""pytest fixtures: one RocketMQ for the test session, topics and groups for single tests.

::

    rocketmq_broker    a trocket.testing.Broker, one for the whole session
    rocketmq_config    the keys of a broker.conf for it; a conftest.py may have its own
    rocketmq_cluster   that broker, or with --rocketmq=URL a running cluster
    rocketmq_topic     the name of a new topic, which is deleted after the test
    rocketmq_group     the name of a consumer group that no other test uses

pytest loads this plugin in every environment that has trocket installed. What only the fixtures
need is therefore imported inside them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .testing.broker import Broker
    from .testing.remote_cluster import RemoteCluster

OPTION = "--rocketmq"
INI = "rocketmq_config"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--rocketmq=URL`, and `rocketmq_config` for pytest.ini and pyproject.toml."""
    parser.addini(
        INI,
        "keys of a broker.conf for the broker of rocketmq_broker: key=value, one a line",
        type="linelist",
        default=[],
    )
    parser.getgroup("rocketmq").addoption(
        OPTION,
        metavar="URL",
        dest="rocketmq_url",
        help="run the tests that use rocketmq_cluster against this cluster, such as "
        "rocketmq://127.0.0.1:9876, instead of the embedded broker",
    )


@pytest.fixture(scope="session")
def rocketmq_config(pytestconfig: pytest.Config) -> Mapping[str, Any]:
    """The keys of a broker.conf for `rocketmq_broker`: those of the ini option of this name.

    For keys that a program computes, a conftest.py defines a fixture of this name.

    Raises: pytest.UsageError: a line of the ini option is not key=value.
    """
    found: dict[str, Any] = {}
    for line in pytestconfig.getini(INI):
        key, separator, value = line.partition("=")
        if not separator or not key.strip():
            raise pytest.UsageError(
                f"{INI}: {line!r} is not key=value, such as defaultTopicQueueNums=1"
            )
        found[key.strip()] = value.strip()
    return found


@pytest.fixture(scope="session")
def rocketmq_broker(rocketmq_config: Mapping[str, Any]) -> Iterator[Broker]:
    """A name server and a broker in this process, shared by all tests of the session.

    Its settings are those of `rocketmq_config`. See `trocket.testing.Broker`.
    """
    try:
        from .common.config import ConfigError
        from .testing.broker import Broker
    except ModuleNotFoundError as error:
        pytest.fail(f"rocketmq_broker needs {error.name}: pip install 'trocket[broker]'")
    try:
        made = Broker(config=rocketmq_config)
    except ConfigError as error:
        raise pytest.UsageError(f"{INI}: {error}") from error
    with made as broker:
        yield broker


@pytest.fixture(scope="session")
def rocketmq_cluster(request: pytest.FixtureRequest) -> Broker | RemoteCluster:
    """The cluster under test: the embedded broker, or the cluster given by `--rocketmq`.

    Either has the attributes `url` and `namesrv_address`, and the methods `create_topic` and
    `delete_topic`.
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
    """The name of a new topic with 8 queues on `rocketmq_cluster`, deleted after the test."""
    from .testing.names import unique_name

    name = unique_name("topic", request.node.name)
    rocketmq_cluster.create_topic(name)
    yield name
    rocketmq_cluster.delete_topic(name)


@pytest.fixture
def rocketmq_group(request: pytest.FixtureRequest) -> str:
    """The name of a consumer group that no other test uses; its first consumer creates it."""
    from .testing.names import unique_name

    return unique_name("group", request.node.name)
