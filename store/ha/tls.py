"""Mutual TLS between a master and its slaves.

trocket only: Apache's brokers have no TLS on this port. A certificate is verified by the authority
that signed it and not by a name in it: addresses come from name servers, and change. So use an
authority that signs for this group of brokers only.

Java counterpart: none; the keys are named after those of remoting/netty/TlsSystemConfig.java.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final, NoReturn

import trio

from ...common.config import ConfigError
from ..config import BrokerRole, MessageStoreConfig

HANDSHAKE_TIMEOUT_S: Final = 5.0


class TlsError(Exception):
    """The TLS handshake failed; the message is the reason."""


class HaTls:
    """One side of the connections.

    Args:
      context: with this broker's certificate, and the authority for the other side's.
      is_master: this side accepts the connections.
    """

    def __init__(self, context: ssl.SSLContext, *, is_master: bool) -> None:
        self._context = context
        self._is_master = is_master

    async def wrap(self, stream: trio.abc.Stream) -> trio.abc.Stream:
        """The encrypted stream over a connected one, which is closed if the handshake fails.

        Raises:
          TlsError: the other side does not speak TLS, or its certificate is not trusted.
        """
        # `https_compatible`: either side closes without a TLS goodbye, as on a plain stream.
        secure = trio.SSLStream(
            stream, self._context, server_side=self._is_master, https_compatible=True
        )
        reason = f"no TLS handshake within {HANDSHAKE_TIMEOUT_S:g} s"
        try:
            with trio.move_on_after(HANDSHAKE_TIMEOUT_S):
                await secure.do_handshake()
                return secure
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            reason = _reason(error.__cause__)
        except BaseException:
            await trio.aclose_forcefully(stream)
            raise
        await trio.aclose_forcefully(stream)
        raise TlsError(reason)


def ha_tls(config: MessageStoreConfig) -> HaTls | None:
    """TLS by the configuration; None: haTlsEnable is false.

    Raises:
      ConfigError: a file cannot be used.
    """
    if not config.ha_tls_enable:
        return None
    is_master = config.broker_role is not BrokerRole.SLAVE
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if is_master else ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.minimum_version = ssl.TLSVersion.TLSv1_3  # both sides are trocket
    files = {
        "haTlsCertPath": config.ha_tls_cert_path,
        "haTlsKeyPath": config.ha_tls_key_path,
        "haTlsTrustCertPath": config.ha_tls_trust_cert_path,
    }
    for key, path in files.items():  # ssl does not say which one is missing
        try:
            Path(path).open("rb").close()
        except OSError as error:
            raise ConfigError(f"{key}={path}: {error.strerror}") from error
    try:
        context.load_cert_chain(
            config.ha_tls_cert_path, config.ha_tls_key_path, password=_no_password
        )
    except (ssl.SSLError, ValueError) as error:
        what = "are not a certificate and its key, in PEM"
        paths = f"haTlsCertPath={config.ha_tls_cert_path}, haTlsKeyPath={config.ha_tls_key_path}"
        raise ConfigError(f"{paths}: {what}: {error}") from error
    try:
        context.load_verify_locations(config.ha_tls_trust_cert_path)
    except ssl.SSLError as error:
        what = "holds no certificate of an authority, in PEM"
        text = f"haTlsTrustCertPath={config.ha_tls_trust_cert_path}: {what}: {error}"
        raise ConfigError(text) from error
    return HaTls(context, is_master=is_master)


def _no_password() -> NoReturn:
    """Called by OpenSSL, which would otherwise ask for the password on the terminal."""
    raise ValueError("the key has a password, and only keys without one can be read")


def _reason(error: BaseException | None) -> str:
    """Why a handshake failed, for logs."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"haTlsTrustCertPath does not trust its certificate: {error.verify_message}"
    # The exception for an end of the connection depends on the version of OpenSSL.
    is_end = isinstance(error, ssl.SSLEOFError) or (
        isinstance(error, ssl.SSLError) and error.reason == "UNEXPECTED_EOF_WHILE_READING"
    )
    if isinstance(error, ssl.SSLError) and not is_end:
        reasons = {
            "WRONG_VERSION_NUMBER": "it does not speak TLS",
            "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it sent no certificate",
        }
        return reasons.get(error.reason or "", f"the TLS handshake failed: {error}")
    return (
        "it ended the TLS handshake: it does not speak TLS, or does not trust this broker's "
        "certificate"
    )
