"""rmq-proxy.json: RocketMQ's keys, and what is wrong with a file."""

from __future__ import annotations

import json

import pytest

from trocket.common.config import ConfigError
from trocket.proxy.config import ProxyConfig, parse_json, read_proxy_config

SUPER = {"accessKey": "root", "secretKey": "rootsecret"}


def read(**keys: object) -> tuple[ProxyConfig, list[str]]:
    text = json.dumps({"namesrvAddr": "127.0.0.1:9876", **keys}, indent=1)
    return read_proxy_config(parse_json(text), ProxyConfig(), path="rmq-proxy.json")


def test_keys_of_rocketmq_are_read() -> None:
    config, warnings = read(
        grpcServerPort=18081, maxMessageSize=1000, userPropertyMaxNum=3, maxDelayTimeMills=5,
        namesrvAddr="a:1;b:2", tlsTestModeEnable=False,
    )  # fmt: skip
    assert warnings == []
    assert config.name_servers == ("a:1", "b:2")
    rules = config.rules
    assert config.grpc_server_port == 18081
    assert rules.max_message_size == 1000
    assert (rules.user_property_max_num, rules.max_delay_time_mills) == (3, 5)


def test_defaults_are_those_of_the_service() -> None:
    from trocket.grpc_server.rules import Rules

    assert ProxyConfig().rules == Rules()


def test_keys_that_are_not_used_are_named() -> None:
    _, warnings = read(grpcThreadPoolNums=16, proxyMode="CLUSTER")
    assert [each.partition(" has no effect")[0] for each in warnings] == [
        "rmq-proxy.json, line 3: grpcThreadPoolNums",
        "rmq-proxy.json, line 4: proxyMode",
    ]


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"grpcServerPrt": 1}, "the nearest key there is: grpcServerPort"),
        ({"grpcServerPort": "many"}, "grpcServerPort must be"),
        ({"namesrvAddr": ""}, "namesrvAddr is not set"),
        ({"namesrvAddr": "nowhere"}, "host:port"),
        ({"authenticationEnabled": True}, "innerClientAuthenticationCredentials"),
        ({"rules": [1]}, "rules must be a plain value"),
    ],
)
def test_what_is_wrong_is_said(keys: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        read(**keys)


@pytest.mark.parametrize("text", ["{", "[]", "1", '{"a": NaN', "[" * 100_000])
def test_what_is_no_json_object_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        read_proxy_config(parse_json(text), ProxyConfig())


def test_the_account_is_that_of_rocketmqs_proxy() -> None:
    of_proxy = "org.apache.rocketmq.proxy.auth"
    keys = {
        "authenticationEnabled": True,
        "authorizationEnabled": True,
        "authenticationMetadataProvider": f"{of_proxy}.ProxyAuthenticationMetadataProvider",
        "authorizationMetadataProvider": f"{of_proxy}.ProxyAuthorizationMetadataProvider",
    }
    for inner in (SUPER, json.dumps(SUPER)):
        config, warnings = read(**keys, innerClientAuthenticationCredentials=inner)
        account = config.access.inner
        assert account is not None
        assert (account.access_key, account.secret_key) == ("root", "rootsecret")
        assert "rootsecret" not in repr(config)
        assert not [each for each in warnings if "Credentials" in each]
