"""TLS of a client's connections: the context for new ones, and errors as text.

The context is made again when one of its files has changed, so a renewed certificate is used from
the next connection on; open connections stay.

Java counterpart: remoting/netty/TlsHelper.java.
"""

from __future__ import annotations

import logging
import os
import socket
import ssl
from collections.abc import Sequence
from typing import Final

import anyio

from ...remoting.tls_options import TlsOptions
from ...remoting.tls_options_context import options_context
from ..errors import ConfigurationError

logger = logging.getLogger(__name__)

_FileState = tuple[int, int, int]
"""A file's inode, its size in bytes, and its time of change in ns."""

CERTIFICATE_WANTED: Final = (
    "it wants a client's certificate: give cert_file and key_file (tls_cert=, --tls-cert)"
)
NO_TLS: Final = "it does not speak TLS: turn TLS on there (tls.server.mode), or leave tls out here"

_ALERTS: Final = {
    "CERTIFICATE_REQUIRED": CERTIFICATE_WANTED,
    "UNKNOWN_CA": "it does not trust the authority of this client's certificate: have the "
    "certificate made by the authority in its tls.server.trustCertPath",
    "CERTIFICATE_EXPIRED": "this client's certificate has expired: renew it",
    "BAD_CERTIFICATE": "it refused this client's certificate, or wants one (cert_file, tls_cert=, "
    "--tls-cert)",
    "CERTIFICATE_UNKNOWN": "it refused this client's certificate, or wants one (cert_file, "
    "tls_cert=, --tls-cert)",
    "HANDSHAKE_FAILURE": "it has no version of TLS and no cipher in common with this client, or "
    "it wants a client's certificate (cert_file, tls_cert=, --tls-cert)",
    "PROTOCOL_VERSION": "it has no version of TLS in common with this client: see its "
    "tls.protocols",
}
"""What to do by the end of the name of an alert of TLS that a server sent."""
_NOT_TLS: Final = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST")
"""OpenSSL's reasons for bytes that are no record of TLS."""

_EXPIRED: Final = 10  # X509_V_ERR_CERT_HAS_EXPIRED
_NOT_YET_VALID: Final = 9  # X509_V_ERR_CERT_NOT_YET_VALID
_OTHER_NAMES: Final = (62, 64)  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH


class ClientTls:
    """TLS of one client.

    Args:
      given: the files; or a context, which stays as it is but for `protocols`.
      protocols: those that the client offers by ALPN; empty: none.

    Raises: ConfigurationError: a file cannot be used; the text names it.
    """

    def __init__(self, given: TlsOptions | ssl.SSLContext, protocols: Sequence[str] = ()) -> None:
        self._options: TlsOptions | None = None
        self._protocols = protocols
        self._states: dict[str, _FileState] = {}
        if isinstance(given, ssl.SSLContext):
            self._context = self._offering(given)
            return
        self._options = given
        self._states = _states(given)
        self._context = self._offering(_context_of(given))

    def _offering(self, context: ssl.SSLContext) -> ssl.SSLContext:
        if self._protocols:
            context.set_alpn_protocols(list(self._protocols))
        return context

    @property
    def has_certificate(self) -> bool | None:
        """Whether the client has a certificate; None: unknown, a context was given."""
        return None if self._options is None else self._options.cert_file is not None

    def context(self) -> ssl.SSLContext:
        """The context for a new connection.

        Files that changed are read again. If they cannot be used, a warning is logged, and the
        certificates that were read last are used further.
        """
        options = self._options
        if options is None:
            return self._context
        try:
            states = _states(options)
            if states != self._states:
                self._context = self._offering(_context_of(options))
                self._states = states
                logger.info("read the changed files of TLS: %s", ", ".join(options.files.values()))
        except ConfigurationError as error:
            logger.warning(
                "%s. New connections use the files as they were before: replace them by good ones",
                error,
            )
        return self._context

    def reason(self, error: BaseException, host: str) -> str:
        """Why the connection to a host failed, and what to do."""
        if isinstance(error, ssl.SSLCertVerificationError):
            return self._not_verified(error, host)
        is_reset = isinstance(error, ConnectionResetError | BrokenPipeError | anyio.EndOfStream)
        if is_reset or is_end(error):
            wanted = "" if self.has_certificate else f", or {CERTIFICATE_WANTED}"
            return f"closed while TLS was set up: {NO_TLS}{wanted}"
        return tls_text(error) or _plain_reason(error)

    def _not_verified(self, error: ssl.SSLCertVerificationError, host: str) -> str:
        code = error.verify_code
        if code == _EXPIRED:
            return "its certificate has expired: renew it there"
        if code == _NOT_YET_VALID:
            return "its certificate is not valid yet: compare the clocks of both machines"
        if code in _OTHER_NAMES:
            return (
                f"its certificate does not name {host}: make one that does, or give "
                "check_hostname=False (tls_check_hostname=false)"
            )
        authority = "the system's authorities" if self._options is None else self._authority()
        return (
            f"its certificate is not signed by {authority} ({error.verify_message}): give the "
            "authority's certificate as ca_file (tls_ca=, --tls-ca)"
        )

    def _authority(self) -> str:
        path = None if self._options is None else self._options.ca_file
        return "an authority of the system" if path is None else f"an authority in {path}"


STREAM_ERRORS: Final = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ConnectionFailed)
"""Errors of a new connection that are no OSError."""


def client_tls(
    tls: TlsOptions | ssl.SSLContext | bool | None, protocols: Sequence[str] = ()
) -> ClientTls | None:
    """TLS by the option `tls`. Raises: ConfigurationError: a file cannot be used."""
    if not tls:
        return None
    return ClientTls(TlsOptions() if tls is True else tls, protocols)


def failure_reason(error: BaseException, tls: ClientTls | None, host: str) -> str:
    """Why no connection to a host could be made, with or without TLS."""
    return _plain_reason(error) if tls is None else tls.reason(_first(error), host.strip("[]"))


def _first(error: BaseException) -> BaseException:
    """What happened at the first address of a host; anyio says only that all of them failed."""
    cause = error.__cause__
    if type(error) is not OSError or error.errno is not None or cause is None:
        return error
    while isinstance(cause, BaseExceptionGroup):
        cause = cause.exceptions[0]
    return cause


def _plain_reason(error: BaseException) -> str:
    """Why a connection without TLS could not be made."""
    error = _first(error)
    if isinstance(error, ConnectionRefusedError):
        return "cannot connect: connection refused, nothing listens at this port"
    if isinstance(error, socket.gaierror):
        return f"cannot connect: no such host ({error.strerror})"
    return f"cannot connect: {error or type(error).__name__}"


def silence_hint(tls: ClientTls | None) -> str:
    """Why a server may end a connection before it sends anything."""
    if tls is None:
        return "it may want TLS (tls=True, tls=true in the URL, --tls)"
    if tls.has_certificate is False:
        return CERTIFICATE_WANTED
    return (
        "it may not trust this client's certificate: have it made by the authority in its "
        "tls.server.trustCertPath, and look in its log"
    )


def tls_text(error: BaseException) -> str:
    """What an error of TLS means, and what to do; "" for other errors."""
    if not isinstance(error, ssl.SSLError):
        return ""
    reason = error.reason or ""
    if reason in _NOT_TLS:
        return NO_TLS
    for name, text in _ALERTS.items():
        if reason.endswith(f"ALERT_{name}"):
            return text
    return f"an error of TLS: {error.reason or error}"


def is_end(error: BaseException) -> bool:
    """Whether an error of TLS is the end of the connection, which Netty does not announce."""
    # The exception depends on the version of OpenSSL.
    return isinstance(error, ssl.SSLEOFError) or (
        isinstance(error, ssl.SSLError) and error.reason == "UNEXPECTED_EOF_WHILE_READING"
    )


def _states(options: TlsOptions) -> dict[str, _FileState]:
    """Raises: ConfigurationError: a file is missing."""
    found = {}
    for name, path in options.files.items():
        try:
            stat = os.stat(path)  # noqa: PTH116 - the path is a string
        except OSError as error:
            raise ConfigurationError(f"{name} {path} of TLS: {error.strerror}") from None
        found[name] = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
    return found


def _context_of(options: TlsOptions) -> ssl.SSLContext:
    """Raises: ConfigurationError: a file cannot be used."""
    try:
        return options_context(options)
    except ValueError as error:
        raise ConfigurationError(str(error)) from None
