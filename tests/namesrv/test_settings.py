"""What UPDATE_NAMESRV_CONFIG may change, and what GET_NAMESRV_CONFIG shows."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trocket.common.config import key_of
from trocket.namesrv.config import NamesrvConfig, known_keys
from trocket.namesrv.settings import SETTABLE, SHOWN, show
from trocket.remoting.response_codes import ResponseCode

from .harness import Harness

DEFAULTS = NamesrvConfig()
GOOD = {
    "connectionsMax": "500",
    "connectionsPerAddressMax": "100",
    "deleteTopicWithBrokerRegistration": "true",
    "enableAllTopicList": "false",
    "enableTopicList": "false",
    "logLevel": "WARNING",
    "logLevels": "namesrv:DEBUG",
    "needWaitForService": "true",
    "notifyMinBrokerIdChanged": "true",
    "orderMessageEnable": "true",
    "requestsInFlightMax": "100",
    "requestsInFlightPerAddressMax": "1000",
    "returnOrderTopicConfigToBroker": "false",
    "scanNotActiveBrokerInterval": "60000",
    "supportActingMaster": "true",
    "unreadAnswersMax": "1048576",
    "unreadAnswersTimeoutSeconds": "5",
    "waitSecondsForService": "3600",
}
"""A value that is not the default, for each key that may change."""

FIXED = sorted({key_of(field) for field in dataclasses.fields(NamesrvConfig)} - GOOD.keys())


def test_every_shown_and_settable_key_is_a_field_and_one_of_rocketmq():
    keys = {key_of(field) for field in dataclasses.fields(NamesrvConfig)}
    assert keys >= SHOWN
    assert SETTABLE <= SHOWN
    assert set(known_keys()) >= SHOWN


def test_no_path_address_or_port_can_be_set():
    words = ("path", "address", "addr", "port", "home", "blacklist")
    assert not [key for key in SETTABLE if key.lower().endswith(words)]


def test_the_configuration_is_shown_sorted_one_key_a_line():
    lines = show(NamesrvConfig(listen_port=9999)).decode().splitlines()
    assert "listenPort=9999" in lines
    assert "enableTopicList=true" in lines
    assert lines == sorted(lines)
    assert len(lines) == len(SHOWN)


def test_there_is_a_good_value_of_every_key_that_may_change():
    assert GOOD.keys() == SETTABLE


@pytest.mark.parametrize("key", sorted(GOOD))
def test_a_key_that_may_change_is_changed_at_once_and_saved(key):
    harness = Harness()
    assert harness.ask(318, f"# of mqadmin\n{key} = {GOOD[key]}\n".encode()).code == 0
    line = f"{key}={GOOD[key]}\n".encode()
    assert line in harness.ask(319).body
    file = harness.disk.open("/n/n.conf")
    assert file.pread(file.size(), 0) == line


@pytest.mark.parametrize("key", [*FIXED, "rocketmqHome", "configBlackList"])
def test_any_other_key_is_refused_by_name_and_nothing_of_the_request_is_done(key):
    harness = Harness()
    answer = harness.ask(318, f"enableTopicList=false\n{key}=1\n".encode())
    assert answer.code == ResponseCode.NO_PERMISSION
    assert key in answer.remark
    assert harness.config == DEFAULTS
    assert not harness.disk.exists("/n/n.conf")


@pytest.mark.parametrize(
    "key", ["configStorePath", "kvConfigPath", "rocketmqHome", "configBlackList"]
)
def test_what_rocketmq_forbids_is_refused_in_its_words(key):
    answer = Harness().ask(318, f"{key}=/tmp/x".encode())
    assert answer.code == ResponseCode.NO_PERMISSION
    assert answer.remark.startswith("Can not update config in black list.")


@pytest.mark.parametrize(
    ("text", "remark"),
    [
        ("scanNotActiveBrokerInterval=99", "scanNotActiveBrokerInterval must be in 100..60000"),
        ("scanNotActiveBrokerInterval=60001", "scanNotActiveBrokerInterval must be in 100..60000"),
        ("scanNotActiveBrokerInterval=abc", "scanNotActiveBrokerInterval must be a plain whole"),
        ("waitSecondsForService=3601", "waitSecondsForService must be in 0..3600"),
        ("enableTopicList=maybe", "enableTopicList must be true or false"),
        ("enableTopicList=\\u12", "four hexadecimal digits"),
        ("enableTopicLists=true", "the nearest key there is: enableTopicList"),
        ("electMasterMaxRetryCount=3", "electMasterMaxRetryCount would have no effect"),
        ("logLevels=no.such:DEBUG", "no part 'no.such'"),
    ],
)
def test_a_wrong_key_or_value_is_refused_by_name(text, remark):
    harness = Harness()
    answer = harness.ask(318, f"enableAllTopicList=false\n{text}\n".encode())
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert remark in answer.remark
    assert harness.config == DEFAULTS


@settings(max_examples=40)
@given(st.binary(max_size=200))
def test_any_bytes_are_carried_out_or_refused(body):
    harness = Harness()
    if harness.ask(318, body).code != 0:
        assert harness.config == DEFAULTS


@pytest.mark.slow
@settings(max_examples=40)
@given(
    key=st.sampled_from([key_of(field) for field in dataclasses.fields(NamesrvConfig)]),
    value=st.text(alphabet="abz0123456789/.:truefalse", max_size=12),
)
def test_no_request_moves_a_file_or_a_socket(key, value):
    harness = Harness()
    config = harness.config
    before = (config.kv_config_path, config.config_store_path, config.listen_port)
    if harness.ask(318, f"{key}={value}\n".encode()).code != 0:
        assert config == DEFAULTS
    assert (config.kv_config_path, config.config_store_path, config.listen_port) == before
    assert config.bind_address == DEFAULTS.bind_address
