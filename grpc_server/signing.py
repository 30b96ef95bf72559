"""The signatures of gRPC clients: who a call is from.

A signature covers the date of the call and nothing else, so it can be used again, for any call, by
one who has read it: where others can listen, use TLS.

Source: proxy/grpc/interceptor, auth/…/AuthenticationContext for gRPC of RocketMQ 5.5.0;
docs of rocketmq-clients.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Final, NamedTuple

from ..grpc_protocol.enums import Code
from .refused import Refused

ALGORITHM: Final = "MQv2-HMAC-SHA1"
_DATE: Final = "x-mq-date-time"


class Signed(NamedTuple):
    """The header `authorization` of a call."""

    access_key: str
    signature: str


def read_authorization(text: str) -> Signed:
    """Read the header.

    Args:
      text: `MQv2-HMAC-SHA1 Credential=KEY/…, SignedHeaders=x-mq-date-time, Signature=HEX`.
    Raises: Refused: UNAUTHORIZED.
    """
    algorithm, _, rest = text.partition(" ")
    parts: dict[str, str] = {}
    for part in rest.split(","):
        name, _, value = part.strip().partition("=")
        parts[name] = value
    # Go's client has two slashes after the key.
    access_key = parts.get("Credential", "").partition("/")[0]
    signature = parts.get("Signature", "")
    if algorithm != ALGORITHM or not access_key or not signature:
        raise Refused(Code.UNAUTHORIZED, f"the call is not signed by {ALGORITHM}")
    return Signed(access_key, signature)


def is_genuine(signed: Signed, secret: str, metadata: Mapping[str, str]) -> bool:
    """Whether the signature is that of an account with this secret."""
    date = metadata.get(_DATE, "")
    expected = hmac.new(secret.encode(), date.encode(), "sha1").hexdigest()
    return hmac.compare_digest(expected.encode(), signed.signature.lower().encode())
