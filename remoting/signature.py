"""Signatures of requests, for the access control of RocketMQ 4.x and 5.x.

The signature covers the values of all ext fields, in the order of their names, and the body. It
does not cover the request code or the time, so only TLS prevents replays.

A signed request with a binary header must not have a field with an empty value: Apache reads it as
null, verifies the signature with the text "null", and refuses the request. Leave such fields out.

Java counterpart: AclClientRPCHook, AclUtils, AclSigner of RocketMQ 5.3.3. Pure.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Final

ACCESS_KEY: Final = "AccessKey"
SIGNATURE: Final = "Signature"
SECURITY_TOKEN: Final = "SecurityToken"

SIGNATURE_SIZE: Final = 28
"""Characters of every signature: 20 bytes in Base64."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """The account of a client.

    Attributes:
      access_key: name of the account; not empty.
      secret_key: secret of the account, which is never sent or shown; not empty.
      security_token: token of a temporary account, otherwise None.

    Raises: ValueError: one of the keys is empty.
    Source: RocketMQ 5.3.3 SessionCredentials.
    """

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Check that the keys are not empty."""
        for name in ("access_key", "secret_key"):
            if not getattr(self, name):
                raise ValueError(f"the {name} is empty: give both keys of the account, or neither")


def credentials_of(environment: Mapping[str, str]) -> Credentials | None:
    """The account in ROCKETMQ_ACCESS_KEY, ROCKETMQ_SECRET_KEY and ROCKETMQ_SECURITY_TOKEN.

    Args:
      environment: environment variables.

    Returns: the account; None if neither key is set.
    Raises: ValueError: one of the keys is set without the other.
    """
    access_key = environment.get("ROCKETMQ_ACCESS_KEY", "")
    secret_key = environment.get("ROCKETMQ_SECRET_KEY", "")
    if not (access_key or secret_key):
        return None
    # Half an account would send unsigned requests, and fail far from its cause.
    if not (access_key and secret_key):
        raise ValueError("set both ROCKETMQ_ACCESS_KEY and ROCKETMQ_SECRET_KEY")
    return Credentials(access_key, secret_key, environment.get("ROCKETMQ_SECURITY_TOKEN") or None)


def sign(
    ext_fields: MutableMapping[str, str],
    body: bytes,
    access_key: str,
    secret_key: str,
    security_token: str | None = None,
) -> None:
    """Add AccessKey, SecurityToken (if there is one) and Signature to the fields of a request.

    Args:
      ext_fields: all fields of the request; they are changed. An existing signature is replaced, so
        a request can be signed again for another attempt.
      body: body of the request as it is sent, after compression.
      access_key, secret_key: keys of the account.
      security_token: token of a temporary account; None or "": none.

    Source: RocketMQ 5.3.3 AclClientRPCHook.doBeforeRequest.
    """
    ext_fields[ACCESS_KEY] = access_key
    if security_token:
        ext_fields[SECURITY_TOKEN] = security_token
    else:
        # A token that is left from another account would be signed.
        ext_fields.pop(SECURITY_TOKEN, None)
    values = [
        ext_fields[name].encode("utf-8", "replace")
        for name in sort_names(ext_fields)
        if name != SIGNATURE
    ]
    ext_fields[SIGNATURE] = signature_of(b"".join((*values, body)), secret_key).decode("ascii")


def without_signature(ext_fields: Mapping[str, str]) -> dict[str, str]:
    """The fields of a request without what signs it, for one that is forwarded to a client."""
    signs = (ACCESS_KEY, SECURITY_TOKEN, SIGNATURE)
    return {name: value for name, value in ext_fields.items() if name not in signs}


def sort_names(names: Iterable[str]) -> list[str]:
    """The names of fields in the order in which their values are signed: by UTF-16 code units."""
    return sorted(names, key=lambda name: name.encode("utf-16-be", "surrogatepass"))


def signature_of(content: bytes, secret_key: str) -> bytes:
    """HMAC-SHA1 of the content in Base64: `SIGNATURE_SIZE` ASCII bytes.

    Args:
      content: bytes to sign.
      secret_key: secret of the account, not empty; encoded as UTF-8.

    Source: RocketMQ 5.3.3 AclSigner.calSignature.
    """
    return b64encode(hmac.digest(secret_key.encode("utf-8", "replace"), content, "sha1"))
