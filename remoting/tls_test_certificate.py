"""A self-signed certificate for RocketMQ's test mode of TLS.

Java counterpart: Netty's SelfSignedCertificate, which TlsHelper.buildSslContext uses.
"""

from __future__ import annotations

import datetime
import os
import ssl
import tempfile
from pathlib import Path
from typing import Final

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
