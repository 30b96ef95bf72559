"""The settings of TLS: keys, files, contradictions, and errors that say what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from trocket.common.config import ConfigError, Entry, parse_properties, to_properties
from trocket.remoting.tls_config import (
    ClientAuth,
    TlsConfig,
    TlsMode,
    check_tls,
    merge_tls,
    openssl_name,
    split_tls,
)
from trocket.remoting.tls_context import client_context, server_context
from trocket.remoting.tls_files import read_tls_config
from trocket.remoting.tls_settings import new_tls

from .tls_support import OTHERS, Certificates


def entries(text: str) -> list[Entry]:
    return parse_properties(text)


ALL_KEYS = """
tls.server.mode=enforcing
tls.enable=true
tls.test.mode.enable=false
tls.server.need.client.auth=require
tls.server.keyPath=/s.key
tls.server.keyPassword=one
tls.server.certPath=/s.pem
tls.server.authClient=true
tls.server.trustCertPath=/ca.pem
tls.server.sniPath=/sni
tls.client.keyPath=/c.key
tls.client.keyPassword=two
tls.client.certPath=/c.pem
tls.client.authServer=true
tls.client.trustCertPath=/ca2.pem
tls.client.checkHostname=true
tls.ciphers=ECDHE-RSA-AES128-GCM-SHA256
tls.protocols=TLSv1.2
"""


def test_every_key_is_read_from_either_file() -> None:
    for of_file, own in ((ALL_KEYS, ""), ("", ALL_KEYS)):
        config, warnings = merge_tls(entries(of_file), entries(own))
        assert warnings == []
        assert dict(to_properties(config)) == {
            "tlsConfigFile": "",
            **{entry.key: entry.value for entry in entries(ALL_KEYS)},
        }
        assert (config.mode, config.need_client_auth) == (TlsMode.enforcing, ClientAuth.require)


def test_the_servers_own_file_counts_more_than_that_of_the_machine() -> None:
    of_file = "tls.server.mode=enforcing\ntls.enable=true"
    config, _ = merge_tls(entries(of_file), entries("tls.server.mode=disabled"))
    assert (config.mode, config.enable) == (TlsMode.disabled, True)


@pytest.mark.parametrize("key", ["tlsConfigFile", "tls.config.file"])
def test_a_servers_file_names_the_file_of_tls(tmp_path: Path, key: str) -> None:
    path = tmp_path / "tls.properties"
    path.write_text("tls.server.mode = enforcing\ntls.client.trustCertPath=ca.pem\n")
    own = entries(f"brokerName=b\n{key}={path}\n")
    config, warnings = read_tls_config(own)
    assert (config.mode, config.config_file, warnings) == (TlsMode.enforcing, str(path), [])
    assert config.client_trust_cert_path == str(Path.cwd() / "ca.pem")
    assert [entry.key for entry in split_tls(own)[1]] == ["brokerName"]
    path.unlink()
    with pytest.raises(ConfigError, match=rf"{path}: cannot be read: No such file"):
        read_tls_config(own)


def test_secrets_are_not_shown() -> None:
    config, _ = merge_tls([], entries("tls.server.keyPassword=hunter2"))
    assert "hunter2" not in repr(config)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("tls.server.mod=disabled", "unknown key 'tls.server.mod'; the nearest key there is: tls."),
        (
            "tls.server.mode=strict",
            "tls.server.mode must be one of disabled, permissive, enforcing",
        ),
        ("tls.server.need.client.auth=yes", "must be one of none, optional, require, not 'yes'"),
        ("tls.enable=1", "tls.enable must be true or false"),
        ("tls.protocols=TLSv1.1:TLSv1.2", "TLSv1.1 is not safe any more; there are TLSv1.2 and"),
        ("tls.protocols=TLS", "tls.protocols: TLS is unknown"),
        ("tls.server.certPath=/x", "tls.server.certPath needs tls.server.keyPath, too"),
        ("tls.server.keyPath=/x", "tls.server.keyPath needs tls.server.certPath, too"),
        ("tls.client.certPath=/x", "tls.client.certPath needs tls.client.keyPath, too"),
        ("tls.server.need.client.auth=require", "would accept any certificate, also one that"),
        (
            "tls.server.need.client.auth=require\ntls.server.authClient=true",
            "needs tls.server.trustCertPath",
        ),
        ("tls.client.checkHostname=true", "needs tls.client.authServer=true"),
    ],
)
def test_what_cannot_be_meant_is_an_error(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=r"^broker.conf") as caught:
        merge_tls([], entries(text), own_path="broker.conf")
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "tls.test.mode.enable=true\ntls.server.certPath=/c\ntls.server.keyPath=/k",
            "certPath has",
        ),
        ("tls.server.authClient=true", "does nothing with tls.server.need.client.auth=none"),
        ("tls.server.need.client.auth=optional", "no certificate is asked for"),
        ("tls.test.mode.enable=false", "clients that connect by TLS are refused"),
        ("tls.test.mode.enable=true\ntls.client.authServer=true", "any server is trusted"),
    ],
)
def test_what_has_no_effect_is_a_warning(text: str, says: str) -> None:
    (warning,) = merge_tls([], entries(text))[1]
    assert says in warning


def test_the_defaults_need_no_word() -> None:
    assert check_tls(TlsConfig()) == []
    assert TlsConfig().is_server_test_mode
    assert not TlsConfig(server_cert_path="c", server_key_path="k").is_server_test_mode


@pytest.mark.parametrize("which", ["server_cert_path", "server_key_path", "server_trust_cert_path"])
@pytest.mark.parametrize("text", [None, "", "no PEM"])
def test_a_file_that_cannot_be_used_is_named(
    files: Certificates, which: str, text: str | None
) -> None:
    path = files.folder / "broken.pem"
    if text is not None:
        path.write_text(text)
    more: dict[str, object] = {"server_trust_cert_path": files.trust(), which: str(path)}
    config = files.server(need_client_auth=ClientAuth.require, auth_client=True)
    for name, value in more.items():
        setattr(config, name, value)
    key = {"cert": "certPath", "key": "keyPath", "trust": "trustCertPath"}[which.split("_")[1]]
    with pytest.raises(ConfigError, match=rf"tls\.server\.{key}={path}"):
        new_tls(config)


def encrypted(path: str, form: serialization.PrivateFormat, password: bytes) -> None:
    """Write a key again, with a password."""
    key = serialization.load_pem_private_key(Path(path).read_bytes(), None)
    secret = serialization.BestAvailableEncryption(password)
    Path(path).write_bytes(key.private_bytes(serialization.Encoding.PEM, form, secret))


@pytest.mark.slow
def test_keys_of_both_forms_are_read(files: Certificates) -> None:
    authority = trustme.CA(key_type=trustme.KeyType.RSA)
    cert_path, key_path = files.folder / "c.pem", files.folder / "k.pem"
    issued = authority.issue_cert("b", key_type=trustme.KeyType.RSA)
    issued.cert_chain_pems[0].write_to_path(str(cert_path))
    key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
    for form, begin in (
        (serialization.PrivateFormat.PKCS8, "-----BEGIN PRIVATE KEY"),
        (serialization.PrivateFormat.TraditionalOpenSSL, "-----BEGIN RSA PRIVATE KEY"),
    ):
        pem = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
        assert pem.decode().startswith(begin)
        key_path.write_bytes(pem)
        server_context(TlsConfig(server_cert_path=str(cert_path), server_key_path=str(key_path)))


@pytest.mark.parametrize(
    "form", [serialization.PrivateFormat.PKCS8, serialization.PrivateFormat.TraditionalOpenSSL]
)
def test_a_key_with_a_password_needs_it(
    files: Certificates, form: serialization.PrivateFormat
) -> None:
    config = files.server()
    encrypted(config.server_key_path, form, b"secret")
    says = rf"keyPath={config.server_key_path} is encrypted: set tls\.server\.keyPassword"
    with pytest.raises(ConfigError, match=says):
        server_context(config)
    config.server_key_password = "wrong"
    with pytest.raises(ConfigError, match=r"tls\.server\.keyPassword does not open the key") as no:
        server_context(config)
    assert "wrong" not in str(no.value)
    config.server_key_password = "secret"
    server_context(config)


def test_a_key_of_another_certificate_is_refused(files: Certificates) -> None:
    config = files.server()
    config.server_key_path = files.write("other", OTHERS)[1]
    with pytest.raises(ConfigError, match="the key does not belong to the certificate"):
        server_context(config)


def test_keys_that_all_may_read_are_reported(files: Certificates) -> None:
    config = files.server()
    Path(config.server_key_path).chmod(0o644)
    own = [Entry(key, value, 0) for key, value in to_properties(config) if value]
    (warning,) = read_tls_config(own)[1]
    assert f"chmod 600 {config.server_key_path}" in warning


@pytest.mark.parametrize(
    ("name", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "ECDHE-ECDSA-AES256-GCM-SHA384"),
        (
            "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
            "ECDHE-RSA-CHACHA20-POLY1305",
        ),
        ("TLS_RSA_WITH_AES_256_CBC_SHA256", "AES256-SHA256"),
        ("TLS_DHE_RSA_WITH_AES_128_CBC_SHA", "DHE-RSA-AES128-SHA"),
        ("ECDHE-RSA-AES128-SHA256", "ECDHE-RSA-AES128-SHA256"),
    ],
)
def test_cipher_suites_have_javas_names_too(name: str, openssl: str) -> None:
    assert openssl_name(name) == openssl
    context = client_context(TlsConfig(ciphers=f"{name}:TLS_AES_128_GCM_SHA256"))
    assert openssl in [each["name"] for each in context.get_ciphers()]


def test_an_unknown_cipher_suite_is_named() -> None:
    with pytest.raises(ConfigError, match="OpenSSL has no cipher suite 'NO-SUCH'"):
        new_tls(TlsConfig(ciphers="ECDHE-RSA-AES128-GCM-SHA256:NO-SUCH"))
