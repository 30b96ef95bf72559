"""Numbers outside of a key's range: what RocketMQ starts with starts, with a warning."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from trocket.broker.settings.config import BrokerConfig, known_keys
from trocket.broker.settings.config_checks import read_broker_config
from trocket.common.config import ConfigError, KnownKey, key_of, parse_properties
from trocket.filtersrv.config import FiltersrvConfig
from trocket.filtersrv.config import known_keys as known_to_filter_servers
from trocket.namesrv.config import NamesrvConfig, read_namesrv_config
from trocket.namesrv.config import known_keys as known_to_name_servers
from trocket.store.config import MessageStoreConfig

REFUSED_BY_BOTH = {
    *("listenPort", "haListenPort", "metricsPromExporterPort"),
    *("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "mappedFileSizeConsumeQueueExt"),
    *("mapperFileSizeBatchConsumeQueue", "maxHashSlotNum", "maxIndexNum"),
}
"""Ports, and sizes of files: RocketMQ does not start, or stores nothing, with one that is none."""

WOULD_LOSE_DATA = {"fileReservedTime"}
"""Below 0 RocketMQ deletes every file that is not written any more."""


def outside(*configs: Any) -> list[tuple[str, int]]:
    """Each key with a range, and a number below and above it."""
    found = []
    for config in configs:
        for field in dataclasses.fields(config):
            rules = field.metadata
            if "minimum" in rules:
                found.append((key_of(field), rules["minimum"] - 1))
            if "maximum" in rules:
                found.append((key_of(field), rules["maximum"] + 1))
    return found


def is_replaced(key: str, known: dict[str, KnownKey]) -> bool:
    return not known[key].is_ours and key not in REFUSED_BY_BOTH | WOULD_LOSE_DATA


def read(text: str) -> tuple[BrokerConfig, MessageStoreConfig, list[str]]:
    return read_broker_config(
        parse_properties(text), BrokerConfig(), MessageStoreConfig(), path="broker.conf"
    )


def test_a_poll_interval_that_apache_takes_starts_the_broker_with_a_warning() -> None:
    broker, _, warnings = read("loadBalancePollNameServerInterval=500")
    assert broker.load_balance_poll_name_server_interval == 1_000
    (warning,) = warnings
    assert warning.startswith("broker.conf, line 1: loadBalancePollNameServerInterval=500 is ")
    assert warning.endswith("outside of what works here, at least 1000: 1000 is used")


@pytest.mark.parametrize(("key", "number"), outside(BrokerConfig, MessageStoreConfig))
def test_a_broker_starts_with_each_number_that_rocketmq_takes(key: str, number: int) -> None:
    text = f"{key}={number}"
    if is_replaced(key, dict(known_keys())):
        assert any(f"{text} is outside of" in warning for warning in read(text)[2])
    else:
        with pytest.raises(ConfigError, match=f"{key} must be a plain whole number"):
            read(text)


@pytest.mark.parametrize(("key", "number"), outside(NamesrvConfig))
def test_a_name_server_starts_with_each_number_that_rocketmq_takes(key: str, number: int) -> None:
    entries = parse_properties(f"{key}={number}")
    if is_replaced(key, dict(known_to_name_servers())):
        assert read_namesrv_config(entries, NamesrvConfig())[1]
    else:
        with pytest.raises(ConfigError, match=f"{key} must be a plain whole number"):
            read_namesrv_config(entries, NamesrvConfig())


def test_each_number_of_a_broker_or_name_server_has_a_range() -> None:
    """One without a lower end would be found wrong by what divides by it or waits for it."""
    without = [
        key_of(field)
        for config in (BrokerConfig(), MessageStoreConfig(), NamesrvConfig())
        for field in dataclasses.fields(config)
        if type(getattr(config, field.name)) is int and "minimum" not in field.metadata
    ]
    assert without == []


def test_each_key_with_a_range_is_known_as_rocketmqs_or_our_own() -> None:
    for known, *configs in (
        (known_keys(), BrokerConfig, MessageStoreConfig),
        (known_to_name_servers(), NamesrvConfig),
        (known_to_filter_servers(), FiltersrvConfig),
    ):
        assert [key for key, _ in outside(*configs) if key not in known] == []


def test_a_broken_idle_time_closes_no_connection_as_with_netty() -> None:
    broker, _, _ = read("serverChannelMaxIdleTimeSeconds=0")
    assert broker.server_channel_max_idle_time_seconds == 2**31 - 1


@pytest.mark.parametrize(
    ("key", "number", "used"),
    [
        ("diskMaxUsedSpaceRatio", 0, 10),
        ("diskMaxUsedSpaceRatio", 101, 95),
        ("diskSpaceCleanForciblyRatio", -5, 30),
        ("diskSpaceWarningLevelRatio", 1_000, 90),
    ],
)
def test_an_impossible_ratio_of_the_disk_counts_as_what_apache_makes_of_it(
    key: str, number: int, used: int
) -> None:
    _, store, _ = read(f"{key}={number}")
    values = {key_of(field): getattr(store, field.name) for field in dataclasses.fields(store)}
    assert values[key] == used


def test_a_text_that_is_no_number_is_still_refused() -> None:
    with pytest.raises(ConfigError, match="must be a plain whole number at least 1000, not 'x'"):
        read("loadBalancePollNameServerInterval=x")
