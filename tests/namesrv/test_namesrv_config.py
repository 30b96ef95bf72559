"""namesrv.conf: Apache's files start ours, RocketMQ's keys are known."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trocket.common.config import ConfigError, key_of, parse_properties, to_properties
from trocket.namesrv.config import NamesrvConfig, known_keys, read_namesrv_config

APACHE_CONTROLLER_CONF = """\
# distribution/conf/controller/quick-start/namesrv.conf of RocketMQ, without its licence header
enableControllerInNamesrv = true
controllerDLegerGroup = group1
controllerDLegerPeers = n0-127.0.0.1:9878
controllerDLegerSelfId = n0"""


def read(text: str, path: str = "") -> tuple[NamesrvConfig, list[str]]:
    return read_namesrv_config(parse_properties(text), NamesrvConfig(), path=path)


def test_the_nameserver_conf_of_apaches_distribution_is_read() -> None:
    config, warnings = read("supportActingMaster=true")
    assert config.support_acting_master
    assert warnings == []


def test_a_controller_in_the_name_server_warns_and_does_not_stop() -> None:
    config, warnings = read(APACHE_CONTROLLER_CONF)
    assert config == NamesrvConfig()
    assert [warning.split()[2] for warning in warnings] == [
        "enableControllerInNamesrv",
        "controllerDLegerGroup",
        "controllerDLegerPeers",
        "controllerDLegerSelfId",
    ]


def test_changed_settings_go_back_to_the_file_given() -> None:
    assert read("listenPort=9999\nconfigStorePath=/x", "n.conf")[0] == NamesrvConfig(
        listen_port=9999, config_store_path="n.conf"
    )


def test_an_unknown_key_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"n.conf, line 2: unknown key .*: orderMessageEnable"):
        read("\nordermessageEnabled=true", "n.conf")


def test_every_supported_key_is_rocketmqs_with_rocketmqs_default() -> None:
    known = known_keys()
    written = dict(to_properties(NamesrvConfig()))
    machine = {"kvConfigPath", "configStorePath"}
    assert {key_of(field) for field in dataclasses.fields(NamesrvConfig)} <= set(known)
    for key, value in written.items():
        if key == "listenPort":  # NamesrvStartup puts 9876 over the class's 0
            assert value == "9876"
        elif key not in machine:
            assert (value or "-") == known[key].default, key


@given(st.text())
def test_any_text_is_a_configuration_or_a_config_error(text: str) -> None:
    try:
        config, _ = read(text)
    except ConfigError:
        return
    assert isinstance(config, NamesrvConfig)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("clusterTest=true", "clusterTest=true needs productNamesrvAddr"),
        ("productNamesrvAddr=a", "productNamesrvAddr: 'a' is not host:port"),
        ("logLevels=store", "logLevels: 'store' is not part:LEVEL"),
    ],
)
def test_texts_with_a_form_of_their_own_are_checked_at_the_start(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        read(text)
