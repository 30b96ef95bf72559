"""The URL and the options of a connection."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from trocket import ConfigurationError
from trocket.integrations.kombu.options import cluster_url, hidden, read_options


def url_of(hostname: str, **more: Any) -> str:
    given = {"userid": None, "password": None, "port": None, **more}
    return cluster_url(SimpleNamespace(hostname=hostname, **given))


def test_urls_are_those_of_trocket_with_commas() -> None:
    assert url_of("rocketmq://a:9876,b:9876?namespace=x,y") == (
        "rocketmq://a:9876;b:9876?namespace=x,y"
    )
    assert url_of("rocketmq://key:se,cret@a") == "rocketmq://key:se,cret@a"
    assert url_of("broker", port=9877) == "rocketmq://broker:9877"
    assert url_of("b", userid="key", password="a@b") == "rocketmq://key:a%40b@b:9876"


def test_grpc_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="name servers"):
        url_of("grpc://proxy:8081")


def test_a_shown_url_has_no_secret() -> None:
    assert hidden("rocketmq://key:secret@a:9876,b", "**") == "rocketmq://key:**@a:9876,b"
    assert hidden("rocketmq://a:9876", "**") == "rocketmq://a:9876"


def test_options_of_kombu_are_passed_over() -> None:
    options = read_options({"polling_interval": 1, "visibility_timeout": 30})
    assert options.visibility_timeout == 30
    assert read_options(None).topic_queues == 4


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("visibility_timeout", 0),
        ("visibility_timeout", "60"),
        ("visibility_timeout", 3 * 24 * 3600 + 1),
        ("wait_time_seconds", 31),
        ("topic_queues", 0),
        ("client_options", 1),
    ],
)
def test_an_invalid_option_is_named(name: str, value: object) -> None:
    with pytest.raises(ConfigurationError, match="transport_options.*" + name):
        read_options({name: value})
