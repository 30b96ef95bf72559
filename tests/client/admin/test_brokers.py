"""Brokers: their names, their settings."""

from __future__ import annotations

import time

import anyio
import pytest

from trocket.client import Admin, ConfigurationError, ConnectError, NotFoundError
from trocket.client.admin.brokers import _properties_text

from .conftest import DEADLINE_S, Do


def test_a_broker_is_meant_by_its_name_or_its_address(do_once: Do) -> None:
    async def verb(admin: Admin) -> None:
        view = await admin.cluster()
        (broker,) = view.brokers
        assert view.name_servers == admin.client.url.name_servers
        assert broker.address is not None
        for each in ("broker-a", broker.address):
            settings = await admin.broker_config(each)
            assert (settings["brokerName"], settings["fileReservedTime"]) == ("broker-a", "72")
        with pytest.raises(ConnectError):
            await admin.broker_config("127.0.0.1:1")
        with pytest.raises(NotFoundError, match="there are: broker-a"):
            await admin.broker_config("nosuch")
        with pytest.raises(ConfigurationError):
            await admin.update_broker_config("broker-a", {})

    do_once(verb)


def test_settings_travel_as_javas_properties() -> None:
    settings = {"brokerName": "a b", "path": "c:\\x", "name": "é=🚀", "line": "a\nb"}
    assert _properties_text(settings) == (
        "brokerName=a\\ b\npath=c:\\\\x\nname=\\u00e9=\\ud83d\\ude80\nline=a\\u000ab\n"
    )
    with pytest.raises(ConfigurationError, match="cannot be a key"):
        _properties_text({"a=b": "c"})


def test_without_a_name_server_every_verb_says_so() -> None:
    async def main() -> None:
        async with Admin("127.0.0.1:1") as admin:
            for verb in (admin.topics, admin.groups, admin.cluster):
                with pytest.raises(ConnectError, match="no name server answered"):
                    await verb()

    start_s = time.monotonic()
    anyio.run(main, backend="trio")
    assert time.monotonic() - start_s < DEADLINE_S


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="unknown option retries"):
        Admin("127.0.0.1:9876", retries=3)  # type: ignore[call-arg]
