"""Handle: a receipt handle of a gRPC client.

Source: common/consumer/ReceiptHandle.java of RocketMQ 5.5.0. Pure.
"""

from __future__ import annotations

from ..grpc_protocol.enums import Code
from ..remoting.errors import RemoteProtocolError
from ..remoting.number_fields import INT64, parse_integer
from ..remoting.receipt import Receipt
from .refused import Refused


class Handle:
    """A receipt handle: a receipt, and the message's place in the commit log."""

    __slots__ = ("physical_offset", "receipt")

    def __init__(self, receipt: Receipt, physical_offset: int) -> None:
        self.receipt = receipt
        self.physical_offset = physical_offset

    def to_text(self) -> str:
        """The handle as clients have it."""
        return f"{self.receipt.to_text()} {self.physical_offset}"

    @classmethod
    def from_text(cls, text: str) -> Handle:
        """Read a handle. Raises: Refused: INVALID_RECEIPT_HANDLE."""
        fields = text.split(" ")
        offset = parse_integer(fields[8]) if len(fields) == 9 else None
        if offset is None or not INT64.has(offset) or offset < 0:
            raise Refused(Code.INVALID_RECEIPT_HANDLE, f"no receipt handle: {text[:100]!r}")
        try:
            return cls(Receipt.from_text(text), offset)
        except RemoteProtocolError as error:
            raise Refused(Code.INVALID_RECEIPT_HANDLE, str(error)) from error

    def check_time(self, now_ms: int) -> None:
        """Refuse a handle whose message is no longer the client's."""
        if self.receipt.revive_time <= now_ms:
            raise Refused(Code.INVALID_RECEIPT_HANDLE, "receipt handle is expired")
