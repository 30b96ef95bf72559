"""Brokers: their names, their settings."""

from __future__ import annotations

import time

import anyio
import pytest

from trocket.client import (
    Admin,
    BrokersError,
    ConfigurationError,
    ConnectError,
    NotFoundError,
    ServerError,
)
from trocket.client.admin.brokers import _properties_text
from trocket.remoting.response_codes import ResponseCode
from trocket.testing import Broker

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


def test_settings_of_a_broker_change_as_a_whole_or_not_at_all(do_once: Do) -> None:
    async def verb(admin: Admin) -> None:
        await admin.update_broker_config(
            "broker-a", {"fileReservedTime": "48", "regionId": "é=🚀 b"}
        )
        after = await admin.broker_config("broker-a")
        assert after["fileReservedTime"] == "48"
        assert after["regionId"] == "\\u00e9=\\ud83d\\ude80 b"  # as a file has it
        wrong = {"fileReservedTime": "24", "flushDiskType": "SYNC_FLUSH"}
        with pytest.raises(
            ServerError, match="flushDiskType: it is read at the start only"
        ) as error:
            await admin.update_broker_config("broker-a", wrong)
        assert error.value.code == ResponseCode.NO_PERMISSION
        assert await admin.broker_config("broker-a") == after
        usual = {"fileReservedTime": "72", "regionId": "DefaultRegion"}
        await admin.update_broker_config("broker-a", usual)

    do_once(verb)


def test_settings_of_name_servers_are_shown_by_address_and_changed_on_all(do_once: Do) -> None:
    async def verb(admin: Admin) -> None:
        (address,) = admin.client.url.name_servers
        await admin.update_name_server_config({"waitSecondsForService": "44"})
        assert (await admin.name_server_config())[address]["waitSecondsForService"] == "44"
        with pytest.raises(ServerError, match="kvConfigPath"):
            await admin.update_name_server_config({"kvConfigPath": "/x"})
        with pytest.raises(ConfigurationError):
            await admin.update_name_server_config({})
        await admin.update_name_server_config({"waitSecondsForService": "45"})

    do_once(verb)


@pytest.mark.slow
def test_a_name_server_that_fails_is_named_and_the_others_are_changed(broker: Broker) -> None:
    async def verb() -> None:
        url = f"rocketmq://127.0.0.1:1;{broker.namesrv_address}"
        async with Admin(url, connect_timeout_s=1.0) as admin:
            with pytest.raises(BrokersError, match="1 of 2 name servers failed: ") as error:
                await admin.update_name_server_config({"waitSecondsForService": "43"})
            assert set(error.value.partial) == {broker.namesrv_address}
            with pytest.raises(BrokersError) as error:
                await admin.name_server_config()
            settings = error.value.partial[broker.namesrv_address]
            assert settings["waitSecondsForService"] == "43"

    anyio.run(verb)


def test_settings_travel_as_javas_properties() -> None:
    settings = {"brokerName": "a b", "path": "c:\\x", "name": "é=🚀", "line": "a\nb"}
    assert _properties_text(settings) == (
        "brokerName=a\\ b\npath=c:\\\\x\nname=\\u00e9=\\ud83d\\ude80\nline=a\\u000ab\n"
    )
    with pytest.raises(ConfigurationError, match="cannot be a key"):
        _properties_text({"a=b": "c"})


@pytest.mark.slow
def test_without_a_name_server_every_verb_says_so() -> None:
    async def main() -> None:
        async with Admin("127.0.0.1:1", wait_for_broker_s=0) as admin:
            for verb in (admin.topics, admin.groups, admin.cluster):
                with pytest.raises(ConnectError, match="no name server answered"):
                    await verb()

    start_s = time.monotonic()
    anyio.run(main, backend="trio")
    assert time.monotonic() - start_s < DEADLINE_S


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="unknown option retries"):
        Admin("127.0.0.1:9876", retries=3)  # type: ignore[call-arg]
