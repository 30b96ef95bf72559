"""ServerTls: the decision which connections of a listener are encrypted, and their certificates.

The first byte of a connection decides: 22 begins a TLS handshake, and no frame of RocketMQ, whose
first four bytes are its length. A file that changes is read again; open connections stay as they
are.

Java counterpart: NettyRemotingServer.TlsModeHandler with TlsHelper, and FileWatchService.
"""

from __future__ import annotations

import datetime
import hashlib
import logging
import os
import ssl
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trio

from ..common.config import ConfigError
from ..common.file_stamps import FileStamp, stamps_of
from ..common.networks import owner_of
from .fair_turns import FairTurns, TooManyWaitError
from .hosts import host_of
from .refusals import Refusals
from .tls_config import TlsConfig, TlsMode
from .tls_context import handshake_problem, new_server_context, server_context, server_paths
from .tls_transport import TlsTransport
from .transport import SocketTransport

# A self-signed certificate for RocketMQ's test mode of TLS.
#
# Java counterpart: Netty's SelfSignedCertificate, which TlsHelper.buildSslContext uses.

VALID_FROM: Final = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
VALID_TO: Final = datetime.datetime(2120, 1, 1, tzinfo=datetime.UTC)
"""Constants, so that clocks that are wrong do not matter. The certificate is made at each start."""


def load_test_certificate(context: ssl.SSLContext) -> None:
    """Make a key and a certificate, and load both into a context. Takes 0.1 s at the first time.

    Raises: ImportError: the package `cryptography` is not installed.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "trocket test mode")])
    certificate = (
        x509.CertificateBuilder(
            name, name, key.public_key(), x509.random_serial_number(),
            VALID_FROM, VALID_TO,
        )
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    pem = certificate.public_bytes(serialization.Encoding.PEM) + key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    # `ssl` reads certificates from files only.
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "test.pem"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(pem)
        context.load_cert_chain(path)


logger = logging.getLogger(__name__)

HANDSHAKE_BYTE: Final = b"\x16"
"""The first byte of TLS: the type of a handshake's record. Source: RFC 8446, 5.1."""

HANDSHAKE_TIMEOUT_S: Final = 10.0
"""How long a handshake may take after the first byte, as long as a first frame may. Netty: 10 s."""

HANDSHAKES_MAX: Final = 1_000
"""Handshakes of a server that have begun and are unfinished; another one ends the oldest of the
address with the most. A client
needs less than a second, so a flood of peers that stall ends its own handshakes first. Each
takes about 100 KiB of memory."""

WAITING_MAX: Final = 5_000
"""Connections that wait to begin their handshakes. Half of connectionsMax by default: one begins in
a millisecond or two, so more would wait longer than HANDSHAKE_TIMEOUT_S anyway."""

CHECK_INTERVAL_S: Final = 1.0
"""Between two looks at the files of certificates: a few microseconds. RocketMQ: 500 ms."""

WRONG_KIND: Final = "tls.server.mode"
FAILED: Final = "TLS_HANDSHAKE"
"""The kinds of refusals in metrics: a connection with TLS where there is none, or without it where
it is required; and a handshake that failed, took too long or was one of too many."""

_UNFINISHED: Final = "closed before its TLS handshake was complete"

_NO_TLS: Final = (
    "closed: it does not speak TLS, which tls.server.mode=enforcing requires. Let it connect by "
    "TLS (RocketMQ's clients: -Dtls.enable=true or setUseTLS(true)), or set "
    "tls.server.mode=permissive"
)

_TRUST_KEY: Final = "tls.server.trustCertPath"

NO_LIBRARY: Final = (
    "no certificate is configured, and the package cryptography, which would make one for tests, "
    "is not installed: set tls.server.certPath and tls.server.keyPath, or pip install "
    "'trocket[tls]'"
)

NO_CERTIFICATE: Final = (
    "no certificate is configured: set tls.server.certPath and tls.server.keyPath"
)

Stamp = tuple[FileStamp, ...]
"""Path, inode, size and time of change of each file."""


@dataclass(eq=False, slots=True)
class _Handshake:
    """A handshake that has begun."""

    scope: trio.CancelScope
    address: str
    was_ended: bool = False  # for newer ones


class ServerTls:
    """TLS of the listeners of one process.

    Lifecycle: `watch` as a task, if certificates are to be renewed; all else works without it.

    Raises: ConfigError: a file of it cannot be used.
    """

    def __init__(self, config: TlsConfig | None = None) -> None:
        self._config = config = config or TlsConfig()
        self._context: ssl.SSLContext | None = None
        self._problem = ""
        self._making = trio.Lock()
        self._pace = trio.Lock()
        self._beginning = FairTurns(WAITING_MAX)
        self._shaking: dict[_Handshake, None] = {}  # the oldest first
        self._of_addresses: Counter[str] = Counter()
        self._stamp: Stamp = ()
        self._digest = b""
        if config.mode is TlsMode.disabled:
            self._problem = "tls.server.mode is disabled here"
        elif config.is_server_test_mode:
            new_server_context(config)  # its errors are reported at the start
        elif config.server_cert_path:
            self._stamp = _stamp_of(config)
            self._digest, self._context = _read(config)
        else:
            self._problem = NO_CERTIFICATE

    @property
    def mode(self) -> TlsMode:
        """What the listeners do."""
        return self._config.mode

    @property
    def handshakes(self) -> int:
        """The number of unfinished handshakes."""
        return len(self._shaking)

    async def context(self) -> ssl.SSLContext | None:
        """The context for new connections; None if there is no certificate."""
        if self._context is None and not self._problem:
            async with self._making:
                if self._context is None and not self._problem:
                    await self._make_test_certificate()
        return self._context

    async def _make_test_certificate(self) -> None:
        context = new_server_context(self._config)
        try:
            await trio.to_thread.run_sync(load_test_certificate, context)
        except ImportError:
            self._problem = NO_LIBRARY
        else:
            logger.warning(
                "clients that connect by TLS get a self-signed certificate, so they cannot verify "
                "this server: for more than tests, set tls.server.certPath and "
                "tls.server.keyPath"
            )
            self._context = context

    async def admit(
        self, transport: SocketTransport, idle_s: float, refusals: Refusals
    ) -> SocketTransport | None:
        """Wait for the first byte of a connection, and complete the handshake if it begins one.

        Args:
          transport: accepted. It is closed by the caller if it is not admitted.
          idle_s: seconds until the first byte.
          refusals: counts and logs what is refused.

        Returns: the transport to serve; None: the connection is refused.
        """
        peer = transport.remote_address
        try:
            with trio.move_on_after(idle_s) as scope:
                first = await transport.first_byte()
        except OSError as error:
            logger.debug("%(peer)s: connection lost: %(error)s", {"peer": peer, "error": error})
            return None
        if scope.cancelled_caught:
            reason = f"nothing was received for {idle_s:g} s"
            logger.warning("%(peer)s: closed: %(reason)s", {"peer": peer, "reason": reason})
            return None
        if first == HANDSHAKE_BYTE:
            return await self._shake(transport, refusals)
        # Without a byte it just ended, as those of health checks do.
        if self.mode is TlsMode.enforcing and first:
            refusals.note_problem(WRONG_KIND, peer, _NO_TLS)
            return None
        return transport

    async def _shake(self, plain: SocketTransport, refusals: Refusals) -> TlsTransport | None:
        peer = plain.remote_address
        context = await self.context()
        if context is None:
            what = f"closed: it speaks TLS, and {self._problem}. Otherwise let it connect without"
            refusals.note_problem(WRONG_KIND, peer, f"{what} TLS")
            return None
        problem = ""
        with trio.move_on_after(HANDSHAKE_TIMEOUT_S) as scope:
            handshake = _Handshake(scope, owner_of(host_of(peer)))
            try:
                # One begins at a time, and those that have begun go on meanwhile: a thousand
                # clients that come at once wait in the socket, not in OpenSSL. The addresses take
                # turns, so a flood of one does not delay the others.
                async with self._beginning.turn(handshake.address):
                    self._make_room()
                    transport = TlsTransport(plain, context, server_side=True)
                    self._add(handshake)
                    await transport.begin(self._pace)
                await transport.handshake(self._pace)
            except OSError as error:
                problem = handshake_problem(error, _TRUST_KEY)
            except TooManyWaitError:
                problem = f"{WAITING_MAX} others wait to begin theirs, most of its address"
            finally:
                self._remove(handshake)
        if scope.cancelled_caught:
            problem = f"its handshake took more than {HANDSHAKE_TIMEOUT_S:g} s"
            if handshake.was_ended:
                problem = (
                    f"{HANDSHAKES_MAX} handshakes are unfinished, which is the limit, and its was "
                    "the oldest of the address with the most. Many of these lines mean a flood of "
                    "connections"
                )
        if problem:
            refusals.note_problem(FAILED, peer, f"{_UNFINISHED}: {problem}")
            return None
        return transport

    async def wrap(
        self, stream: trio.abc.Stream, where: str, refusals: Refusals
    ) -> trio.abc.Stream | None:
        """The encrypted stream over an accepted one; None: refused.

        For listeners that are not a `RemotingServer`'s, and speak TLS only.

        Args:
          stream: closed by the caller.
          where: the listener, for the log.
          refusals: counts and logs what is refused.
        """
        context = await self.context()
        if context is None:
            what = f"a connection is closed, because it has to be by TLS, and {self._problem}"
            refusals.note_problem(WRONG_KIND, where, what)
            return None
        # `https_compatible`: either side closes without waiting for TLS's goodbye.
        secure = trio.SSLStream(stream, context, server_side=True, https_compatible=True)
        problem = f"its handshake took more than {HANDSHAKE_TIMEOUT_S:g} s"
        with trio.move_on_after(HANDSHAKE_TIMEOUT_S):
            try:
                await secure.do_handshake()
            except trio.BrokenResourceError as error:
                cause = error.__cause__
                problem = handshake_problem(
                    cause if isinstance(cause, Exception) else error, _TRUST_KEY
                )
            else:
                return secure
        refusals.note_problem(FAILED, where, f"a connection is {_UNFINISHED}: {problem}")
        return None

    def _add(self, handshake: _Handshake) -> None:
        self._shaking[handshake] = None
        self._of_addresses[handshake.address] += 1

    def _remove(self, handshake: _Handshake) -> None:
        if handshake in self._shaking:
            del self._shaking[handshake]
            self._of_addresses[handshake.address] -= 1
            if not self._of_addresses[handshake.address]:
                del self._of_addresses[handshake.address]

    def _make_room(self) -> None:
        """End the oldest unfinished handshake of the busiest address, if there are too many."""
        if len(self._shaking) >= HANDSHAKES_MAX:
            ((address, _),) = self._of_addresses.most_common(1)
            # The oldest, because an honest client needs less than a second.
            oldest = next(each for each in self._shaking if each.address == address)
            self._remove(oldest)
            oldest.was_ended = True
            oldest.scope.cancel()

    # Renewed certificates

    async def watch(self) -> None:
        """Use renewed files for new connections, until cancelled.

        Files that do not belong together, because one of them is not written yet, are tried again
        until they do.
        """
        config = self._config
        if not self._stamp:
            await trio.sleep_forever()
        tried: Stamp = ()
        is_refused = False
        while True:
            await trio.sleep(CHECK_INTERVAL_S)
            if config.server_sni_path:  # a thousand folders take 0.1 s
                stamp = await trio.to_thread.run_sync(_stamp_of, config)
            else:
                stamp = _stamp_of(config)
            if stamp == self._stamp or (stamp == tried and is_refused):
                continue
            try:
                digest, context = await trio.to_thread.run_sync(_read, config)
            except ConfigError as error:
                # At the first look, they may be half written.
                is_refused = stamp == tried
                tried = stamp
                if is_refused:
                    logger.error(
                        "the changed files of TLS cannot be used, so new connections still get "
                        "the former certificate: %(error)s",
                        {"error": error},
                    )
                continue
            if digest != self._digest:
                self._digest, self._context = digest, context
                logger.info(
                    "new connections get the changed certificates of %(path)s; open ones stay as "
                    "they are",
                    {"path": config.server_cert_path},
                )
            self._stamp, tried, is_refused = stamp, (), False


def _read(config: TlsConfig) -> tuple[bytes, ssl.SSLContext]:
    """A digest of the files, and the context that they make.

    Raises: ConfigError: they cannot be used.
    """
    context = server_context(config)
    digest = hashlib.sha256()
    for path in server_paths(config):
        # Contents and not times: a file that is replaced by a copy of itself changes nothing.
        digest.update(path.encode(errors="surrogateescape"))
        try:
            digest.update(Path(path).read_bytes())
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}") from error
    return digest.digest(), context


def _stamp_of(config: TlsConfig) -> Stamp:
    """The stamp of the files as they are; whether they can be used, `_read` finds out."""
    try:
        paths = server_paths(config)
    except ConfigError as error:
        return ((str(error), 0, 0, 0),)
    return stamps_of(paths)
