"""TLS from flags, a URL and the environment: what is joined, and what takes precedence."""

from __future__ import annotations

import pytest

from trocket.remoting.cluster_url import parse_url
from trocket.remoting.tls_options import (
    TlsOptions,
    TlsSettings,
    settings_of,
    tls_settings_of,
)

NOTHING = TlsSettings()

JOINED = {
    "nothing": (NOTHING, NOTHING, False),
    "only on": (TlsSettings(enabled=True), NOTHING, True),
    "a file turns it on": (TlsSettings(ca_file="a"), NOTHING, TlsOptions(ca_file="a")),
    "the first takes precedence": (
        TlsSettings(ca_file="a"),
        TlsSettings(ca_file="b", verify=False),
        TlsOptions(ca_file="a"),
    ),
    "the other one completes it": (
        TlsSettings(ca_file="a"),
        TlsSettings(cert_file="c", key_file="k", key_password="p"),
        TlsOptions(ca_file="a", cert_file="c", key_file="k", key_password="p"),
    ),
    "a key stays with its certificate": (
        TlsSettings(cert_file="mine"),
        TlsSettings(cert_file="c", key_file="k"),
        TlsOptions(cert_file="mine"),
    ),
    "no verification drops the other's authority": (
        TlsSettings(verify=False),
        TlsSettings(ca_file="b"),
        TlsOptions(verify=False),
    ),
    "off is off": (TlsSettings(enabled=False), TlsSettings(ca_file="b"), False),
    "off elsewhere is overruled": (TlsSettings(enabled=True), TlsSettings(enabled=False), True),
    "a file overrules off elsewhere": (
        TlsSettings(ca_file="a"),
        TlsSettings(enabled=False),
        TlsOptions(ca_file="a"),
    ),
    "a password alone is none": (NOTHING, TlsSettings(key_password="p"), False),
}


@pytest.mark.parametrize(("first", "second", "tls"), JOINED.values(), ids=JOINED)
def test_settings_are_joined(
    first: TlsSettings, second: TlsSettings, tls: TlsOptions | bool
) -> None:
    assert first.over(second).tls == tls


def test_variables_are_read() -> None:
    found = tls_settings_of(
        {
            "ROCKETMQ_TLS": "true",
            "ROCKETMQ_TLS_CA": "a",
            "ROCKETMQ_TLS_CERT": "c",
            "ROCKETMQ_TLS_KEY": "k",
            "ROCKETMQ_TLS_KEY_PASSWORD": "p",
            "ROCKETMQ_TLS_CHECK_HOSTNAME": "False",
            "ROCKETMQ_TLS_VERIFY": "",
        }
    )
    assert found.tls == TlsOptions("a", "c", "k", "p", check_hostname=False)


def test_a_wrong_variable_is_named() -> None:
    with pytest.raises(ValueError, match="ROCKETMQ_TLS_VERIFY='no' is neither true nor false"):
        tls_settings_of({"ROCKETMQ_TLS_VERIFY": "no"})


@pytest.mark.parametrize(
    "query", ["", "tls=true", "tls_ca=a", "tls_verify=false&tls_cert=c", "tls_check_hostname=false"]
)
def test_the_settings_of_a_url_are_its_tls(query: str) -> None:
    tls = parse_url(f"rocketmq://a?{query}").tls
    assert settings_of(tls).tls == tls
