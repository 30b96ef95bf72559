"""The context of a client's TLS, made from the files that its options name.

Java counterpart: TlsHelper.buildSslContext(true).
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import NoReturn

from .tls_options import TlsOptions


def options_context(options: TlsOptions) -> ssl.SSLContext:
    """A context for connections to servers.

    Raises: ValueError: a file cannot be used; the text names it.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = options.verify and options.check_hostname
    context.verify_mode = ssl.CERT_REQUIRED if options.verify else ssl.CERT_NONE
    files = options.files
    for name, path in files.items():  # ssl does not say which one is missing
        try:
            Path(path).open("rb").close()
        except OSError as error:
            raise ValueError(f"{name} {path} of TLS: {error.strerror}") from None
    if options.verify:
        _load_authorities(context, files.get("ca_file"))
    if "cert_file" in files:
        _load_certificate(context, options)
    return context


def _load_authorities(context: ssl.SSLContext, path: str | None) -> None:
    if path is None:
        context.load_default_certs()
        return
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise ValueError(
            f"ca_file {path} of TLS has no certificate of an authority in PEM ({error.reason})"
        ) from None


def _load_certificate(context: ssl.SSLContext, options: TlsOptions) -> None:
    files = options.files
    shown = ", ".join(f"{name} {path}" for name, path in files.items() if name != "ca_file")
    try:
        context.load_cert_chain(
            files["cert_file"], files.get("key_file"), password=options.key_password or _no_password
        )
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise ValueError(f"{shown} of TLS: the key is another certificate's") from None
        what = "are no certificate and its key in PEM"
        if options.key_password:
            what += ", or key_password is wrong"
        raise ValueError(f"{shown} of TLS {what} ({error.reason or error})") from None
    except ValueError as error:
        raise ValueError(f"{shown} of TLS: {error}") from None


def _no_password() -> NoReturn:
    """Called by OpenSSL, which would otherwise ask for the password on the terminal."""
    raise ValueError("the key has a password: give key_password (ROCKETMQ_TLS_KEY_PASSWORD)")
