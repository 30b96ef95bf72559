"""SSL contexts of servers and of their own connections, from the settings of TLS and PEM files.

Java counterpart: remoting/netty/TlsHelper.java of 5.5.0.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final

from ..common.config import ConfigError
from .tls_config import ClientAuth, TlsConfig

SNI_NAMES_MAX: Final = 1_000
"""Folders in tls.server.sniPath; each takes some 20 KiB of memory."""

SNI_FILES: Final = (("fullchain.pem", "privkey.pem"), ("tls.crt", "tls.key"))
"""Names of the certificate and its key in a folder: those of certbot, and of Kubernetes."""

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}

_ALERTS: Final = ("UNKNOWN_CA", "CERTIFICATE_UNKNOWN", "BAD_CERTIFICATE", "CERTIFICATE_EXPIRED")

_MISMATCHES: Final = ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH")

_REASONS: Final = {
    "WRONG_VERSION_NUMBER": "it does not speak TLS",
    "HTTP_REQUEST": "it does not speak TLS, but HTTP",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": (
        "it sent no certificate, which tls.server.need.client.auth=require asks for"
    ),
    "NO_SHARED_CIPHER": "it has no cipher suite in common with this side (tls.ciphers)",
    "UNSUPPORTED_PROTOCOL": "it has no version of TLS in common with this side (tls.protocols)",
    "TLSV1_ALERT_PROTOCOL_VERSION": "it has no version of TLS in common (tls.protocols)",
}


ALPN: Final = ("http/1.1", "h2")
"""What clients of the listeners may speak besides RocketMQ's own protocol, for which there is no
name. gRPC's offer `h2` only. One that offers both is a reader of metrics, which get HTTP/1.1."""


def new_server_context(config: TlsConfig) -> ssl.SSLContext:
    """A context for listeners, without a certificate.

    Raises: ConfigError: a value, or the file of authorities, cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION  # it costs a server far more than a client
    _set_protocols_and_ciphers(context, config)
    context.set_alpn_protocols(ALPN)
    if config.auth_client and config.need_client_auth is not ClientAuth.none:
        is_required = config.need_client_auth is ClientAuth.require
        context.verify_mode = ssl.CERT_REQUIRED if is_required else ssl.CERT_OPTIONAL
        _load_trust(context, "tls.server.trustCertPath", config.server_trust_cert_path)
    return context


def server_context(config: TlsConfig) -> ssl.SSLContext:
    """The context for listeners, with the certificates of the configuration.

    Raises: ConfigError: a value or a file cannot be used.
    """
    context = new_server_context(config)
    _load_pair(
        context, "tls.server", config.server_cert_path, config.server_key_path,
        config.server_key_password,
    )  # fmt: skip
    by_name: dict[str, ssl.SSLContext] = {}
    for name, (cert_path, key_path) in sni_files(config).items():
        by_name[name] = new_server_context(config)
        _load_pair(by_name[name], "tls.server.sniPath", cert_path, key_path,
                   config.server_key_password)  # fmt: skip
    if by_name:

        def choose(connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
            wanted = (name or "").lower()
            # A wildcard stands for one label, as in certificates.
            chosen = by_name.get(wanted) or by_name.get(f"*.{wanted.partition('.')[2]}")
            if chosen is not None:
                connection.context = chosen

        context.sni_callback = choose
    return context


def client_context(config: TlsConfig) -> ssl.SSLContext:
    """The context for connections to other servers.

    Raises: ConfigError: a value or a file cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Before verify_mode: `ssl` refuses CERT_NONE while names are checked.
    context.check_hostname = config.verifies_servers and config.check_hostname
    context.verify_mode = ssl.CERT_REQUIRED if config.verifies_servers else ssl.CERT_NONE
    _set_protocols_and_ciphers(context, config)
    if config.verifies_servers:
        if config.client_trust_cert_path:
            _load_trust(context, "tls.client.trustCertPath", config.client_trust_cert_path)
        else:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    if config.client_cert_path:
        _load_pair(
            context, "tls.client", config.client_cert_path, config.client_key_path,
            config.client_key_password,
        )  # fmt: skip
    return context


def server_paths(config: TlsConfig) -> list[str]:
    """The files that `server_context` depends on.

    Raises: ConfigError: tls.server.sniPath cannot be read.
    """
    paths = [config.server_cert_path, config.server_key_path]
    if config.auth_client:
        paths.append(config.server_trust_cert_path)
    for pair in sni_files(config).values():
        paths += pair
    return [path for path in paths if path]


def client_paths(config: TlsConfig) -> list[str]:
    """The files that `client_context` depends on."""
    paths = [config.client_cert_path, config.client_key_path]
    if config.verifies_servers:
        paths.append(config.client_trust_cert_path)
    return [path for path in paths if path]


def sni_files(config: TlsConfig) -> dict[str, tuple[str, str]]:
    """The certificate and the key of each name in tls.server.sniPath.

    Raises: ConfigError: the folder cannot be read, or one in it lacks a file.
    """
    folder = config.server_sni_path
    if not folder:
        return {}
    found: dict[str, tuple[str, str]] = {}
    try:
        for each in sorted(Path(folder).iterdir()):
            if each.is_dir() and not each.name.startswith("."):
                found[each.name.lower()] = _files_in(each)
    except OSError as error:
        raise ConfigError(f"tls.server.sniPath={folder}: {error.strerror}") from error
    if len(found) > SNI_NAMES_MAX:
        raise ConfigError(f"tls.server.sniPath={folder}: more than {SNI_NAMES_MAX} folders")
    return found


def _files_in(folder: Path) -> tuple[str, str]:
    for cert_name, key_name in SNI_FILES:
        cert_path, key_path = folder / cert_name, folder / key_name
        if cert_path.exists() and key_path.exists():
            return str(cert_path), str(key_path)
    pairs = ", nor ".join(" with ".join(pair) for pair in SNI_FILES)
    raise ConfigError(f"tls.server.sniPath: {folder} has neither {pairs}")


def _set_protocols_and_ciphers(context: ssl.SSLContext, config: TlsConfig) -> None:
    versions = sorted(_VERSIONS[name] for name in config.protocol_names)
    context.minimum_version, context.maximum_version = versions[0], versions[-1]
    if config.cipher_names:
        for name in config.cipher_names:
            try:
                context.set_ciphers(name)
            except ssl.SSLError as error:
                reason = f"tls.ciphers: OpenSSL has no cipher suite {name[:60]!r} for TLS 1.2"
                raise ConfigError(reason) from error
        context.set_ciphers(":".join(config.cipher_names))


def _load_trust(context: ssl.SSLContext, key: str, path: str) -> None:
    _check_readable(key, path)
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise ConfigError(f"{key}={path}: it has no certificate in PEM form: {error}") from error
    # As in Java, a certificate of the file is trusted although its authority is not in the file.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN


def _load_pair(
    context: ssl.SSLContext, prefix: str, cert_path: str, key_path: str, password: str
) -> None:
    cert_key, key_key = f"{prefix}.certPath", f"{prefix}.keyPath"
    _check_readable(cert_key, cert_path)
    _check_readable(key_key, key_path)
    paths = f"{cert_key}={cert_path}, {key_key}={key_path}"

    is_encrypted = False

    def give_password() -> str:
        nonlocal is_encrypted
        is_encrypted = True
        if not password:  # OpenSSL would ask for it on the terminal
            raise ConfigError(f"{key_key}={key_path} is encrypted: set {prefix}.keyPassword")
        return password

    try:
        context.load_cert_chain(cert_path, key_path, password=give_password)
    except ssl.SSLError as error:
        problem = f"they are not a certificate and its key in PEM form: {error}"
        if error.reason in _MISMATCHES:
            problem = "the key does not belong to the certificate"
        elif is_encrypted:
            problem = f"{prefix}.keyPassword does not open the key"
        raise ConfigError(f"{paths}: {problem}") from error
    except ValueError as error:  # a password of more than 1,023 bytes
        raise ConfigError(f"{prefix}.keyPassword: {error}") from error


def _check_readable(key: str, path: str) -> None:
    """`ssl` does not say which of its files is missing.

    Raises: ConfigError: the file cannot be read.
    """
    try:
        with Path(path).open("rb") as file:
            file.read(1)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(f"{key}={path}: {why}") from error


def handshake_problem(error: Exception, trust_key: str) -> str:
    """Why a handshake failed, for logs and errors.

    Args:
      error: from `ssl`, or of the connection.
      trust_key: the key of the authorities that this side trusts.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"{trust_key} does not trust its certificate: {error.verify_message}"
    reason = (error.reason or "") if isinstance(error, ssl.SSLError) else ""
    if (
        isinstance(error, ssl.SSLEOFError | ConnectionError)
        or reason == "UNEXPECTED_EOF_WHILE_READING"
    ):
        return (
            "it ended the connection; it may not trust the certificate of this side, or not speak "
            "TLS"
        )
    if reason.endswith(_ALERTS):
        alert = reason.rpartition("ALERT_")[2].lower().replace("_", " ")
        return f"it does not trust the certificate of this side ({alert})"
    return _REASONS.get(reason, f"the handshake failed: {error}")
