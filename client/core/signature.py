"""Signing requests with a key: access control as RocketMQ 4.x and 5.x brokers check it.

The signature covers the values of all ext fields, in the order of their names, and the body. It
covers neither the request code nor the time, so TLS is what keeps a request from being replayed.

A field with an empty value must not go into a signed request with a binary header: Apache reads it
as null, puts the text "null" into what it checks, and refuses the request. Leave such fields out.

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
    """Who a client says it is.

    Attributes:
      access_key: the account's name; not empty.
      secret_key: never sent, never shown; not empty.
      security_token: of a temporary account, else None.
    Raises: ValueError: one of the keys is empty.
    Source: RocketMQ 5.3.3 SessionCredentials.
    """

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Refuse what no broker would take."""
        for name in ("access_key", "secret_key"):
            if not getattr(self, name):
                raise ValueError(f"the {name} is empty: give both keys of the account, or neither")


def credentials_of(environment: Mapping[str, str]) -> Credentials | None:
    """The account that ROCKETMQ_ACCESS_KEY, ROCKETMQ_SECRET_KEY and ROCKETMQ_SECURITY_TOKEN name.

    Returns: None: neither key is set.
    Raises: ValueError: one of the keys is set without the other.
    """
    access_key = environment.get("ROCKETMQ_ACCESS_KEY", "")
    secret_key = environment.get("ROCKETMQ_SECRET_KEY", "")
    if not (access_key or secret_key):
        return None
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
    """Add AccessKey, SecurityToken (if there is one) and Signature to a request's fields.

    Args:
      ext_fields: all fields that will be sent; changed. A signature that is there already is
        replaced, so a request can be signed again for its next try.
      body: as it will be sent: after compression.
      security_token: None or "": none.
    Source: RocketMQ 5.3.3 AclClientRPCHook.doBeforeRequest.
    """
    ext_fields[ACCESS_KEY] = access_key
    if security_token:
        ext_fields[SECURITY_TOKEN] = security_token
    else:
        # It may be an earlier account's, and would be signed.
        ext_fields.pop(SECURITY_TOKEN, None)
    values = [
        ext_fields[name].encode("utf-8", "replace")
        for name in sort_names(ext_fields)
        if name != SIGNATURE
    ]
    ext_fields[SIGNATURE] = signature_of(b"".join((*values, body)), secret_key).decode("ascii")


def sort_names(names: Iterable[str]) -> list[str]:
    """The names of fields in the order in which their values are signed: by UTF-16 units."""
    return sorted(names, key=lambda name: name.encode("utf-16-be", "surrogatepass"))


def signature_of(content: bytes, secret_key: str) -> bytes:
    """HMAC-SHA1 of the content in Base64: `SIGNATURE_SIZE` ASCII bytes.

    Args:
      content: what is signed.
      secret_key: not empty; used as UTF-8.
    Source: RocketMQ 5.3.3 AclSigner.calSignature.
    """
    return b64encode(hmac.digest(secret_key.encode("utf-8", "replace"), content, "sha1"))
