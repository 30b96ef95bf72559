"""A private authority for TLS: its folder of certificates, keys and `tls.properties`.

::

    ca.crt  ca.key
    server/  ca.crt  server.crt  server.key  tls.properties
    client/  ca.crt  client.crt  client.key  tls.properties

A subfolder is what one machine needs. Keys are PKCS#8, as RocketMQ reads no other form, and only
their owner may read them. `tls.properties` has RocketMQ's keys, which trocket and Apache's servers
and clients read.

Java counterpart: none; keys of tls.properties: remoting/netty/TlsSystemConfig.java.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP256R1,
    EllipticCurvePrivateKey,
    generate_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ...common.config import property_line
from ...common.whole_file import replacing

CA_CERT: Final = "ca.crt"
CA_KEY: Final = "ca.key"
PROPERTIES: Final = "tls.properties"
SERVER: Final = "server"
CLIENT: Final = "client"

CA_DAYS: Final = 3650
"""Days of an authority: replacing it means a new ca.crt on each machine."""
DAYS: Final = 825
"""Days of a certificate: the most that common systems accept."""
CLOCK_SKEW: Final = timedelta(hours=1)
"""How far the clock of another machine may be behind when a certificate is made."""
KEY_MODE: Final = 0o600
CERT_MODE: Final = 0o644

_USES: Final = {
    # A broker is a client of name servers, too.
    SERVER: (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH),
    CLIENT: (ExtendedKeyUsageOID.CLIENT_AUTH,),
}


class AuthorityError(Exception):
    """The folder has files that would be overwritten, lacks one, or one cannot be used."""


@dataclass(frozen=True)
class CertificateInfo:
    """What `trocket tls show` prints of a certificate.

    Attributes:
      subject, issuer: names as text, "CN=server,O=trocket".
      names: host names and addresses for which a server may use it.
      not_before_ms, not_after_ms: when it is valid, in ms since 1970.
      uses: "server" and "client": for what it is meant.
      is_authority: it may sign others.
      serial: serial number, in hexadecimal digits.
    """

    subject: str
    issuer: str
    names: tuple[str, ...]
    not_before_ms: int
    not_after_ms: int
    uses: tuple[str, ...]
    is_authority: bool
    serial: str


class Authority:
    """An authority in a folder.

    Args:
      folder: with ca.crt and ca.key.
      now: the current time, from which certificates are valid.

    Raises: AuthorityError: one of them is missing or cannot be used.
    """

    def __init__(self, folder: Path, now: datetime) -> None:
        self.folder = folder
        self._now = now
        self._certificate = read_certificate(folder / CA_CERT)
        self._key = _read_key(folder / CA_KEY)
        if self._key.public_key() != self._certificate.public_key():
            raise AuthorityError(f"{folder / CA_KEY} is not the key of {folder / CA_CERT}")

    @classmethod
    def make(cls, folder: Path, now: datetime, *, name: str) -> Authority:
        """Make an authority and its files; existing ones are overwritten.

        Args:
          now: the current time.
          name: the common name of its certificate.

        Raises: AuthorityError: a file cannot be written.
        """
        key = generate_private_key(SECP256R1())
        subject = _name(name)
        certificate = (
            _builder(subject, subject, key, now, now + timedelta(days=CA_DAYS))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(signs=True), critical=True)
            .sign(key, hashes.SHA256())
        )
        _write(folder / CA_KEY, _key_bytes(key), KEY_MODE)
        _write(folder / CA_CERT, _pem(certificate), CERT_MODE)
        return cls(folder, now)

    def issue(
        self,
        name: str,
        *,
        names: Sequence[str],
        days: int = DAYS,
        client_auth: str | None = None,
    ) -> list[Path]:
        """Make a certificate with a new key, and all files of its subfolder.

        Args:
          name: of the subfolder and its files, and the certificate's common name.
          names: host names and addresses of a server; none: it is a client's.
          days: how long the certificate is valid; never longer than the authority's.
          client_auth: tls.server.need.client.auth in tls.properties: none, optional or require;
            None: leave tls.properties as it is, if there is one.

        Returns: the files.
        Raises: AuthorityError: a file cannot be written.
        """
        kind = SERVER if names else CLIENT
        key = generate_private_key(SECP256R1())
        end = min(self._now + timedelta(days=days), self._certificate.not_valid_after_utc)
        builder = (
            _builder(_name(name), self._certificate.subject, key, self._now, end)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(_USES[kind]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )
        if names:
            alternatives = x509.SubjectAlternativeName([_general_name(each) for each in names])
            builder = builder.add_extension(alternatives, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        folder = self.folder / name
        files = files_of(self.folder, name)
        # Apache's servers read both again when both have changed.
        _write(files[2], _key_bytes(key), KEY_MODE)
        _write(files[1], _pem(certificate), CERT_MODE)
        authority = _pem(self._certificate)
        if not _has(files[0], authority):  # a changed authority makes servers read all again
            _write(files[0], authority, CERT_MODE)
        if client_auth is not None or not files[3].exists():
            text = properties_text(folder.absolute(), name, kind, client_auth or "optional")
            _write(files[3], text.encode("ascii"), CERT_MODE)
        return files

    def renew(self, name: str, *, days: int = DAYS) -> list[Path]:
        """Make a certificate again, for the same names, with a new key.

        Raises: AuthorityError: no certificate has that name, or a file cannot be written.
        """
        info = info_of(read_certificate(self.folder / name / f"{name}.crt"))
        return self.issue(name, names=info.names, days=days)

    def issued(self) -> list[str]:
        """The names of the certificates in the folder, sorted."""
        return sorted(path.parent.name for path in self.folder.glob("*/*.crt")
                      if path.stem == path.parent.name)  # fmt: skip


def files_of(folder: Path, name: str) -> list[Path]:
    """The files of a certificate: the authority's, its own, its key, tls.properties."""
    own = folder / name
    return [own / CA_CERT, own / f"{name}.crt", own / f"{name}.key", own / PROPERTIES]


def properties_text(folder: Path, name: str, kind: str, client_auth: str) -> str:
    """The lines of tls.properties for the files of a subfolder.

    Args:
      folder: where the files are, absolute.
      kind: SERVER or CLIENT.
      client_auth: none, optional or require; of a server.
    """
    cert, key, authority = (str(folder / each) for each in (f"{name}.crt", f"{name}.key", CA_CERT))
    pairs = {"tls.test.mode.enable": "false"}
    if kind == SERVER:
        pairs |= {
            "tls.server.certPath": cert,
            "tls.server.keyPath": key,
            "tls.server.trustCertPath": authority,
            "tls.server.need.client.auth": client_auth,
            "tls.server.authClient": "false" if client_auth == "none" else "true",
        }
    pairs |= {
        "tls.client.certPath": cert,
        "tls.client.keyPath": key,
        "tls.client.trustCertPath": authority,
        "tls.client.authServer": "true",
    }
    return "".join(property_line(key, value) for key, value in pairs.items())


def read_certificates(path: Path) -> list[x509.Certificate]:
    """The certificates of a PEM file. Raises: AuthorityError: it cannot be read, or has none."""
    try:
        return x509.load_pem_x509_certificates(path.read_bytes())
    except OSError as error:
        raise AuthorityError(f"{path}: {error.strerror}") from None
    except ValueError:
        raise AuthorityError(f"{path} has no certificate in PEM") from None


def read_certificate(path: Path) -> x509.Certificate:
    """The first certificate of a PEM file. Raises: AuthorityError: as `read_certificates`."""
    return read_certificates(path)[0]


def info_of(certificate: x509.Certificate) -> CertificateInfo:
    """What a certificate says."""
    extensions = certificate.extensions
    names: tuple[str, ...] = ()
    with contextlib.suppress(x509.ExtensionNotFound):
        alternatives = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        names = tuple(str(each.value) for each in alternatives)
    uses: tuple[str, ...] = ()
    with contextlib.suppress(x509.ExtensionNotFound):
        found = extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        texts = {ExtendedKeyUsageOID.SERVER_AUTH: SERVER, ExtendedKeyUsageOID.CLIENT_AUTH: CLIENT}
        uses = tuple(texts[each] for each in found if each in texts)
    is_authority = False
    with contextlib.suppress(x509.ExtensionNotFound):
        is_authority = extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    return CertificateInfo(
        subject=certificate.subject.rfc4514_string(),
        issuer=certificate.issuer.rfc4514_string(),
        names=names,
        not_before_ms=_ms(certificate.not_valid_before_utc),
        not_after_ms=_ms(certificate.not_valid_after_utc),
        uses=uses,
        is_authority=is_authority,
        serial=f"{certificate.serial_number:x}",
    )


def problems_of(
    certificate: x509.Certificate, authorities: Iterable[x509.Certificate], now: datetime
) -> list[str]:
    """What is wrong with a certificate; nothing: it is valid, and one of the authorities signed it.

    Args:
      authorities: their certificates; without any, the signature is not checked.
      now: the time at which it is to be valid.
    """
    found = []
    if now < certificate.not_valid_before_utc:
        found.append(f"not valid before {certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC")
    if now > certificate.not_valid_after_utc:
        found.append(f"expired at {certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC")
    known = list(authorities)
    if known and not any(_is_signed_by(certificate, each) for each in known):
        found.append("not signed by the authority")
    return found


def _is_signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def certificate_of(der: bytes) -> x509.Certificate:
    """A certificate as a server sends it. Raises: AuthorityError: the bytes are not one."""
    try:
        return x509.load_der_x509_certificate(der)
    except ValueError:
        raise AuthorityError("the server's certificate cannot be decoded") from None


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: EllipticCurvePrivateKey,
    now: datetime,
    end: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "trocket"),
            x509.NameAttribute(NameOID.COMMON_NAME, common_name),
        ]
    )


def _key_usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def address_of(text: str) -> IPv4Address | IPv6Address | None:
    """The address in a string; None: it is a host name."""
    try:
        return ip_address(text)
    except ValueError:
        return None


def _general_name(text: str) -> x509.GeneralName:
    address = address_of(text)
    return x509.DNSName(text) if address is None else x509.IPAddress(address)


def _read_key(path: Path) -> EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except OSError as error:
        raise AuthorityError(f"{path}: {error.strerror}") from None
    except (ValueError, TypeError):
        raise AuthorityError(f"{path} has no private key in PEM without a password") from None
    if not isinstance(key, EllipticCurvePrivateKey):
        raise AuthorityError(f"{path} has a key of another kind than `trocket tls init` makes")
    return key


def _key_bytes(key: EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def _has(path: Path, content: bytes) -> bool:
    try:
        return path.read_bytes() == content
    except FileNotFoundError:
        return False
    except OSError as error:
        raise AuthorityError(f"{path}: {error.strerror}") from None


def _write(path: Path, content: bytes, mode: int) -> None:
    """Replace a file at once, so that a server never reads a half. Raises: AuthorityError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path, mode=mode) as file:
            file.write(content)
    except OSError as error:
        raise AuthorityError(f"{path} cannot be written: {error.strerror}") from error
