"""The ports of a broker, and when it does without the one for slaves."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing

import pytest

from trocket.broker.settings.config import BrokerConfig
from trocket.broker.settings.listening import (
    VIP_PORT_STEP,
    ha_port,
    listen,
    listen_for_slaves,
    listeners_of,
)
from trocket.common.metrics_keys import MetricsExporterType
from trocket.remoting.metrics.listening import open_metrics_listener
from trocket.remoting.server import open_listener
from trocket.store.config import BrokerRole, MessageStoreConfig

HOST = "127.0.0.1"


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that is in use."""
    with closing(socket.create_server((HOST, 0))) as listener:
        yield listener.getsockname()[1]


def ports(listeners: list[socket.socket]) -> list[int]:
    found = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return found


def test_a_taken_port_for_metrics_is_named_with_its_key(taken: int) -> None:
    config = BrokerConfig(
        metrics_exporter_type=MetricsExporterType.PROM,
        metrics_prom_exporter_host=HOST,
        metrics_prom_exporter_port=taken,
    )
    with pytest.raises(OSError, match=rf"metricsPromExporterPort.*{taken}.*in use"):
        open_metrics_listener(config)
    config.metrics_exporter_type = MetricsExporterType.OTLP_GRPC
    assert open_metrics_listener(config) is None


def test_a_free_port_has_its_vip_port_two_below() -> None:
    first, vip = ports(listen(HOST, 0))
    assert first - vip == VIP_PORT_STEP


def test_a_port_whose_vip_port_is_taken_is_given_back(taken: int) -> None:
    with pytest.raises(OSError, match=str(taken)):
        listen(HOST, taken + VIP_PORT_STEP)
    socket.create_server((HOST, taken + VIP_PORT_STEP)).close()


@pytest.mark.parametrize(("configured", "port"), [(0, 10912), (20_000, 20_000)])
def test_slaves_connect_one_above_unless_the_file_says_otherwise(configured, port) -> None:
    assert ha_port(MessageStoreConfig(ha_listen_port=configured), 10911) == port


def test_a_master_listens_for_slaves_on_this_machine_only_and_a_slave_not_at_all(
    taken: int,
) -> None:
    config = MessageStoreConfig(ha_listen_port=0)
    with closing(socket.create_server((HOST, 0))) as free:
        port = free.getsockname()[1]
    (listener,) = listen_for_slaves(config, port - 1)
    with closing(listener):
        assert listener.getsockname() == (HOST, port)
    assert listen_for_slaves(MessageStoreConfig(broker_role=BrokerRole.SLAVE), taken - 1) == []


def test_brokers_beside_one_another_need_no_slaves(taken: int, caplog) -> None:
    assert listen_for_slaves(MessageStoreConfig(), taken - 1) == []
    (record,) = caplog.records
    assert "set haListenPort to a free port" in record.message
    assert str(taken) in record.message


def test_a_broker_in_a_test_waits_for_slaves_only_where_the_file_speaks_of_them() -> None:
    with closing(socket.create_server((HOST, 0))) as free:
        port = free.getsockname()[1]
    assert listen_for_slaves(MessageStoreConfig(), port - 1, expected=False) == []
    config = MessageStoreConfig(broker_role=BrokerRole.SYNC_MASTER)
    (listener,) = listen_for_slaves(config, port - 1, expected=False)
    listener.close()


@pytest.mark.parametrize("role", [BrokerRole.ASYNC_MASTER, BrokerRole.SYNC_MASTER])
def test_a_port_that_is_wanted_and_taken_is_an_error(role: BrokerRole, taken: int) -> None:
    wanted = MessageStoreConfig(broker_role=role, ha_listen_port=taken)
    with pytest.raises(OSError, match=str(taken)):
        listen_for_slaves(wanted, 10911)


def test_a_sync_master_does_not_do_without_slaves(taken: int) -> None:
    with pytest.raises(OSError, match=str(taken)):
        listen_for_slaves(MessageStoreConfig(broker_role=BrokerRole.SYNC_MASTER), taken - 1)


def test_grpc_server_port_is_a_further_port() -> None:
    with open_listener("127.0.0.1", 0) as free:
        port = free.getsockname()[1]
    config = BrokerConfig(bind_address="127.0.0.1", listen_port=0, grpc_server_port=port)
    listeners = listeners_of(config)
    ports = [each.getsockname()[1] for each in listeners]
    for listener in listeners:
        listener.close()
    assert ports[1] == ports[0] - 2
    assert ports[2:] == [port]


def test_a_taken_grpc_server_port_is_named_and_the_others_are_closed() -> None:
    with open_listener("127.0.0.1", 0) as taken, open_listener("127.0.0.1", 0) as first:
        port, free = taken.getsockname()[1], first.getsockname()[1]
        first.close()
        config = BrokerConfig(bind_address="127.0.0.1", listen_port=free, grpc_server_port=port)
        with pytest.raises(OSError, match=str(port)):
            listeners_of(config)
        open_listener("127.0.0.1", free).close()
