"""Everything that can go wrong on the wire.

::

    RemotingError
    ├── LocalProtocolError      we broke the protocol's rules: our bug, or a caller's
    │   └── FrameTooLargeError  what is to be sent is larger than a peer takes
    ├── RemoteProtocolError     the peer's bytes break them; `position` says where
    ├── RemotingConnectError    no connection, or it was lost before the answer came
    ├── RemotingTimeoutError    no answer within the time given
    └── MissingPackageError     a package is needed that is not installed; the text says which extra
    RequestRefused              a processor's "no": response code and remark for the peer

The store's own tree is in `store/errors.py`. Anything outside both trees is a bug of ours: the
peer gets SYSTEM_ERROR, the log a traceback.
"""

from __future__ import annotations

from collections.abc import Mapping


class RemotingError(Exception):
    """Base of all errors of the wire."""


class LocalProtocolError(RemotingError):
    """What we were about to send is not allowed by the protocol."""


class FrameTooLargeError(LocalProtocolError):
    """A request or an answer is larger than one frame may be.

    Args:
      size: bytes of the frame.
      size_max: bytes that a frame may have.
    """

    def __init__(self, size: int, size_max: int) -> None:
        super().__init__(
            f"a frame of {size} bytes is larger than the limit of {size_max} "
            "(RocketMQ: com.rocketmq.remoting.frameMaxLength)"
        )


class RemoteProtocolError(RemotingError):
    """What the peer sent is not allowed by the protocol.

    Args:
      reason: what was wrong, in words that help whoever wrote the peer.
      position: byte offset of the fault in the buffer that was being read, >= 0; None: unknown.
    """

    def __init__(self, reason: str, position: int | None = None) -> None:
        super().__init__(reason if position is None else f"{reason} (at byte {position})")
        self.reason = reason
        self.position = position


class RemotingConnectError(RemotingError):
    """The connection could not be made, or was lost before the answer came."""


class RemotingTimeoutError(RemotingError):
    """The peer did not answer within the time given.

    Args:
      peer: "ip:port".
      code: the request's.
      timeout_s: seconds that were waited.
    """

    def __init__(self, peer: str, code: int, timeout_s: float) -> None:
        super().__init__(f"{peer} did not answer request {code} within {timeout_s} s")
        self.code = code
        self.timeout_s = timeout_s


class MissingPackageError(RemotingError):
    """What is to be done needs a package that is not installed.

    Args:
      purpose: what needs it.
      extra: the extra of trocket that brings it.
    """

    def __init__(self, purpose: str, extra: str) -> None:
        super().__init__(f"{purpose} needs another package: pip install 'trocket[{extra}]'")


class RequestRefused(Exception):
    """A processor refuses a request; the server turns this into the answer.

    Args:
      code: a ResponseCode.
      remark: the text for the peer; RocketMQ's own words where clients show them.
      fields: what the answer's header says beyond that.
    """

    def __init__(self, code: int, remark: str, fields: Mapping[str, str] | None = None) -> None:
        super().__init__(f"{code}: {remark}")
        self.code = code
        self.remark = remark
        self.fields: Mapping[str, str] = fields or {}
