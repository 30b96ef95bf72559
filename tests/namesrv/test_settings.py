"""The allow-lists of UPDATE_NAMESRV_CONFIG and GET_NAMESRV_CONFIG."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trocket.common.config import key_of, parse_properties
from trocket.namesrv.config import NamesrvConfig, known_keys
from trocket.namesrv.settings import SETTABLE, SHOWN, change, edit_properties, show
from trocket.remoting.errors import RequestRefused
from trocket.remoting.response_codes import ResponseCode


def test_every_shown_and_settable_key_is_a_field_and_one_of_rocketmq():
    keys = {key_of(field) for field in dataclasses.fields(NamesrvConfig)}
    assert keys >= SHOWN
    assert set(SETTABLE) <= SHOWN
    assert set(known_keys()) >= SHOWN


def test_no_path_address_or_port_can_be_set():
    words = ("path", "address", "port", "home", "blacklist")
    assert not [key for key in SETTABLE if key.lower().endswith(words)]


def test_the_configuration_is_shown_sorted_one_key_a_line():
    lines = show(NamesrvConfig(listen_port=9999)).decode().splitlines()
    assert "listenPort=9999" in lines
    assert "enableTopicList=true" in lines
    assert lines == sorted(lines)
    assert len(lines) == len(SHOWN)


def test_several_keys_are_set_at_once():
    config = NamesrvConfig()
    body = b"# of mqadmin\nenableTopicList=false\nscanNotActiveBrokerInterval = 7000\n"
    assert change(config, body) == {
        "enableTopicList": "false",
        "scanNotActiveBrokerInterval": "7000",
    }
    assert (config.enable_topic_list, config.scan_not_active_broker_interval) == (False, 7000)


def test_an_empty_text_changes_nothing():
    config = NamesrvConfig()
    assert change(config, b"") == {}
    assert config == NamesrvConfig()


@pytest.mark.parametrize(
    "key",
    ["configStorePath", "configStorePathName", "kvConfigPath", "rocketmqHome", "configBlackList",
     "listenPort", "bindAddress", "productEnvName", "noSuchKey"],
)  # fmt: skip
def test_any_other_key_is_refused_and_nothing_of_the_request_is_done(key):
    config = NamesrvConfig()
    with pytest.raises(RequestRefused) as refusal:
        change(config, f"enableTopicList=false\n{key}=/tmp/x\n".encode())
    assert refusal.value.code == ResponseCode.NO_PERMISSION
    assert refusal.value.remark.startswith("Can not update config in black list.")
    assert config == NamesrvConfig()


@pytest.mark.parametrize(
    "text",
    ["scanNotActiveBrokerInterval=99", "scanNotActiveBrokerInterval=60001",
     "scanNotActiveBrokerInterval=abc", "waitSecondsForService=3601", "enableTopicList=maybe",
     "enableTopicList=\\u12"],
)  # fmt: skip
def test_a_value_of_a_wrong_type_or_range_is_refused(text):
    config = NamesrvConfig()
    with pytest.raises(RequestRefused) as refusal:
        change(config, f"enableAllTopicList=false\n{text}\n".encode())
    assert refusal.value.code == ResponseCode.SYSTEM_ERROR
    assert config == NamesrvConfig()


@settings(max_examples=40)
@given(st.binary(max_size=200))
def test_any_bytes_are_carried_out_or_refused(body):
    config = NamesrvConfig()
    try:
        values = change(config, body)
    except RequestRefused:
        assert config == NamesrvConfig()
    else:
        assert set(values) <= set(SETTABLE)


@settings(max_examples=40)
@given(
    key=st.sampled_from([key_of(field) for field in dataclasses.fields(NamesrvConfig)]),
    value=st.text(alphabet="abz0123456789/.:truefalse", max_size=12),
)
def test_no_request_moves_a_file_or_a_socket(key, value):
    config = NamesrvConfig()
    before = (config.kv_config_path, config.config_store_path, config.listen_port)
    try:
        change(config, f"{key}={value}\n".encode())
    except RequestRefused:
        assert config == NamesrvConfig()
    assert (config.kv_config_path, config.config_store_path, config.listen_port) == before
    assert config.bind_address == NamesrvConfig().bind_address


def test_a_file_keeps_its_comments_and_other_keys_when_values_are_set():
    before = b"# mine\nlistenPort=9876\n\nenableTopicList = true\nenableTopicList=true\n"
    after = edit_properties(before, {"enableTopicList": "false", "waitSecondsForService": "3"})
    assert after == (b"# mine\nlistenPort=9876\n\nenableTopicList=false\nwaitSecondsForService=3\n")


@settings(max_examples=40)
@given(
    before=st.dictionaries(st.sampled_from(sorted(SHOWN)), st.sampled_from(["1", "true"])),
    values=st.dictionaries(st.sampled_from(sorted(SETTABLE)), st.sampled_from(["2", "false"])),
)
def test_an_edited_file_reads_as_the_old_values_with_the_new_ones(before, values):
    content = "".join(f"{key} : {value}\n" for key, value in before.items()).encode()
    edited = edit_properties(content, values)
    entries = {entry.key: entry.value for entry in parse_properties(edited.decode("latin-1"))}
    assert entries == {**before, **values}
    assert edit_properties(edited, values) == edited


def test_a_line_that_cannot_be_read_is_kept():
    assert edit_properties(b"a=\\u12\n", {"enableTopicList": "true"}) == (
        b"a=\\u12\nenableTopicList=true\n"
    )
