"""`trocket cluster config` and `namesrv-config`: settings of running servers."""

from __future__ import annotations

import json

import pytest

from trocket.testing import Broker

from .conftest import Run


@pytest.mark.slow
@pytest.mark.parametrize("family", ["cluster", "broker"])
def test_settings_are_shown_and_changed(run: Run, broker: Broker, family: str) -> None:
    command = (family, "config", "broker-a")
    changed = run(*command, "--set", "fileReservedTime=48", "--yes", "--json")
    assert changed.json["changed"] == {"fileReservedTime": "48"}
    assert "started without a file to save it in" in changed.json["remark"]
    assert run(*command, "--json").json["fileReservedTime"] == "48"
    assert run(*command, "--set", "fileReservedTime=72", "--yes").status == 0
    refused = run(*command, "--set", "listenPort=1", "--yes")
    assert refused.status == 1
    assert "listenPort: it is read at the start only" in refused.err


@pytest.mark.slow
@pytest.mark.parametrize("command", [("cluster", "namesrv-config"), ("namesrv", "config")])
def test_settings_of_name_servers_are_shown_and_changed(
    run: Run, broker: Broker, command: tuple[str, ...]
) -> None:
    changed = run(*command, "--set", "waitSecondsForService=44", "--yes", "--json")
    assert changed.json == {"changed": {"waitSecondsForService": "44"}}
    shown = run(*command, "--json").json[broker.namesrv_address]
    assert shown["waitSecondsForService"] == "44"
    assert [broker.namesrv_address, "waitSecondsForService", "44"] in run(*command).rows
    assert run(*command, "--set", "waitSecondsForService=45", "--yes").status == 0
    refused = run(*command, "--set", "kvConfigPath=/x", "--yes")
    assert refused.status == 1
    assert "Can not update config in black list. kvConfigPath" in refused.err
    assert run(*command, "--set", "kvConfigPath").status == 2
    ended = run(*command, "--json", "--url", f"{broker.namesrv_address};127.0.0.1:1")
    assert (ended.status, list(json.loads(ended.out))) == (1, [broker.namesrv_address])
    assert "1 of 2 name servers failed: 127.0.0.1:1" in ended.err
