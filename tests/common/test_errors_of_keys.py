"""The error of each key whose value has a form says what to write, with an example."""

from __future__ import annotations

import pytest

from trocket.broker.settings.config import BrokerConfig
from trocket.broker.settings.config_checks import read_broker_config
from trocket.common.config import ConfigError, Entry
from trocket.filtersrv.config import read_filtersrv_config
from trocket.namesrv.config import NamesrvConfig, read_namesrv_config
from trocket.store.config import MessageStoreConfig


def of_broker(entries):
    read_broker_config(entries, BrokerConfig(), MessageStoreConfig())


def of_namesrv(entries):
    read_namesrv_config(entries, NamesrvConfig())


@pytest.mark.parametrize(
    ("read", "key", "value", "example"),
    [
        (of_broker, "haAllowedSlaves", "99", "10.0.0.7;192.168.0.0/16"),
        (of_broker, "limitExemptAddresses", "all", "127.0.0.0/8;10.0.0.7"),
        (of_broker, "haMasterAddress", "master", "192.168.0.1:10912"),
        (of_broker, "brokerIP1", "a b", "192.168.0.1 or broker-a.example.com"),
        (of_broker, "brokerIP2", "a b", "192.168.0.1 or broker-a.example.com"),
        (of_broker, "brokerName", "a;b", "such as broker-a"),
        (of_broker, "brokerClusterName", "", "such as DefaultCluster"),
        (of_broker, "deleteWhen", "four", "04;16"),
        (of_broker, "deleteWhen", "99", "04;16"),
        (of_broker, "deleteWhen", "", "04;16"),
        (of_broker, "listenPort", "2", "write 3 to 65535, such as 10911, or 0 for a free one"),
        (of_broker, "namesrvAddr", "x", "127.0.0.1:9876;192.168.0.1:9876"),
        (of_broker, "messageDelayLevel", "1w", "1s 5s 10m 2h"),
        (of_broker, "initAuthenticationUser", "me", '{"username":"admin","password":"'),
        (of_broker, "innerClientAuthenticationCredentials", "me", '{"accessKey":"broker","secret'),
        (of_broker, "authenticationWhitelist", "all", "such as 105"),
        (of_namesrv, "productNamesrvAddr", "x", "192.168.0.1:9876;192.168.0.2:9876"),
        (read_filtersrv_config, "connectWhichBroker", "x", "such as 127.0.0.1:10911"),
    ],
)
def test_an_error_has_an_example(read, key, value, example):
    with pytest.raises(ConfigError) as caught:
        read([Entry(key, value, 1)])
    error = str(caught.value)
    assert key in error
    assert example in error
    for words_of_python in ("invalid literal", "does not appear", "int()"):
        assert words_of_python not in error


def test_an_example_of_an_account_shows_no_secret_of_the_file():
    for key in ("initAuthenticationUser", "innerClientAuthenticationCredentials"):
        with pytest.raises(ConfigError) as caught:
            of_broker([Entry(key, "hunter2", 1)])
        assert "hunter2" not in str(caught.value)
