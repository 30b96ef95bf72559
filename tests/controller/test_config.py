"""controller.conf: Apache's file starts ours, and what cannot be done here is refused or named."""

from __future__ import annotations

import dataclasses
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trocket.common.config import ConfigError, key_of, parse_properties
from trocket.controller.config import ControllerConfig, Peer, known_keys, read_controller_config
from trocket.controller.server import etcd_tls
from trocket.controller.settings import SETTABLE, SHOWN

STANDALONE = """\
# distribution/conf/controller/controller-standalone.conf of RocketMQ, without its licence header
controllerDLegerGroup = group1
controllerDLegerPeers = n0-127.0.0.1:9878
controllerDLegerSelfId = n0
controllerStorePath = /tmp/rmq/controller
enableElectUncleanMaster = false
notifyBrokerRoleChanged = true"""

THREE = "n0-10.0.0.1:9878;n1-10.0.0.2:9879;n2-10.0.0.3:9878"


def read(text: str, path: str = "") -> tuple[ControllerConfig, list[str]]:
    return read_controller_config(parse_properties(text), ControllerConfig(), path=path)


def test_the_file_of_apaches_distribution_is_read() -> None:
    config, warnings = read(STANDALONE)
    assert warnings == []
    assert (config.own_port, config.own_peer) == (9878, Peer("n0", "127.0.0.1:9878"))
    assert config.controller_store_path == "/tmp/rmq/controller"


def test_the_port_is_that_of_the_own_entry_or_rocketmqs() -> None:
    assert read("")[0].own_port == 19876
    assert read("listenPort=9878")[0].own_port == 9878
    text = (
        f"controllerDLegerPeers={THREE}\ncontrollerDLegerSelfId=n1\nlistenPort=1\n"
        "etcdEndpoints=http://e:2379"
    )
    assert read(text)[0].own_port == 9879


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"controllerDLegerPeers={THREE}", "several controllers need etcdEndpoints"),
        ("etcdEndpoints=http://e:2379", "needs controllerDLegerPeers"),
        ("controllerDLegerPeers=n0-h", "is not name-host:port"),
        ("controllerDLegerPeers=h:1", "is not name-host:port"),
        ("controllerDLegerPeers=n0-h:0", "is not name-host:port"),
        ("controllerDLegerPeers=n1-h:1", "is none of the names in"),
        ("controllerDLegerPeers=n0-h:1;n0-h:2", "a name is there twice"),
        ("etcdEndpoints=e:2379", "is not http://host:port"),
        ("etcdEndpoints=http://e", "is not http://host:port"),
        ("etcdEndpoints=http://[e:1", "is not http://host:port"),
        ("etcdEndpoints=http://u:p@e:1", "is not http://host:port"),
        ("etcdEndpoints=http://e:1/path", "is not http://host:port"),
        ("etcdEndpoints=http://e:1;https://e:2", "all or none must be https"),
        ("etcdUser=u", "belong together"),
        ("etcdKeyPath=/k", "belong together"),
        ("electMasters=1", "unknown key"),
        ("brokerClusterNam=x", "the nearest key there is: brokerClusterName"),
    ],
)
def test_what_cannot_work_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read(text)


@pytest.mark.parametrize(
    "key", ["controllerType=jRaft", "jRaftGroupId=g", "scanInactiveMasterInterval=5000"]
)
def test_keys_without_an_effect_are_named(key: str) -> None:
    (warning,) = read(key)[1]
    assert key.partition("=")[0] in warning


def test_every_key_is_known_and_no_path_can_be_set_by_a_request() -> None:
    keys = {key_of(field) for field in dataclasses.fields(ControllerConfig)}
    assert keys <= set(known_keys())
    assert SETTABLE <= SHOWN <= keys
    assert "etcdPassword" not in SHOWN
    words = ("path", "address", "addr", "port", "endpoints", "prefix", "user", "password")
    assert not [key for key in SETTABLE if key.lower().endswith(words)]


@given(st.text())
def test_any_text_is_peers_and_endpoints_or_an_error(text: str) -> None:
    config = ControllerConfig(controller_d_leger_peers=text, etcd_endpoints=text)
    for name in ("peers", "own_peer", "own_port", "endpoints"):
        with suppress(ConfigError):
            getattr(config, name)


def test_certificates_of_etcd_that_cannot_be_used_are_an_error(tmp_path: Path) -> None:
    missing = tmp_path / "missing.pem"
    config = ControllerConfig(etcd_endpoints="https://e:1", etcd_trust_cert_path=str(missing))
    with pytest.raises(ConfigError, match="etcdTrustCertPath"):
        etcd_tls(config)
    missing.write_text("no certificate")
    with pytest.raises(ConfigError, match="etcdTrustCertPath"):
        etcd_tls(config)
    assert etcd_tls(ControllerConfig(etcd_endpoints="http://e:1")) is None
