"""Errors of the remoting protocol.

::

    RemotingError
    ├── LocalProtocolError      our side breaks the protocol: a bug of ours or of a caller
    │   └── FrameTooLargeError  a frame to be sent is larger than peers accept
    ├── RemoteProtocolError     the peer breaks the protocol; `position` is the place
    ├── RemotingConnectError    no connection, or it was lost before the answer
    ├── RemotingTimeoutError    no answer within the time-out
    └── MissingPackageError     a required package is not installed; the message names the extra
    RequestRefused              a processor refuses: response code and remark for the peer

The store's tree is in `disk/errors.py`. Any other exception is a bug of ours: the peer gets
SYSTEM_ERROR, the log a traceback.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..common.distribution import to_install


class RemotingError(Exception):
    """Base of all errors of the remoting protocol."""


class LocalProtocolError(RemotingError):
    """The protocol does not allow what we were about to send."""


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
    """The peer sent something that the protocol does not allow.

    Args:
      reason: the fault, in words that help the author of the peer.
      position: byte offset of the fault in the buffer being read, >= 0; None: unknown.
    """

    def __init__(self, reason: str, position: int | None = None) -> None:
        super().__init__(reason if position is None else f"{reason} (at byte {position})")
        self.reason = reason
        self.position = position


class RemotingConnectError(RemotingError):
    """The connection could not be opened, or was lost before the answer."""


class RemotingTimeoutError(RemotingError):
    """The peer did not answer within the time-out.

    Args:
      peer: "ip:port".
      timeout_s: the time-out in seconds.
    """

    def __init__(self, peer: str, code: int, timeout_s: float) -> None:
        super().__init__(f"{peer} did not answer request {code} within {timeout_s} s")
        self.code = code
        self.timeout_s = timeout_s


class MissingPackageError(RemotingError):
    """A feature needs a package that is not installed.

    Args:
      purpose: names the feature.
      extra: the extra of trocket that installs the package.
    """

    def __init__(self, purpose: str, extra: str) -> None:
        super().__init__(f"{purpose} needs another package: {to_install(extra)}")


class RequestRefused(Exception):
    """A processor refuses a request; the server turns this into the answer.

    Args:
      code: a ResponseCode.
      remark: the text for the peer; RocketMQ's own words if clients show them.
      fields: further fields of the answer's header.
    """

    def __init__(self, code: int, remark: str, fields: Mapping[str, str] | None = None) -> None:
        super().__init__(f"{code}: {remark}")
        self.code = code
        self.remark = remark
        self.fields: Mapping[str, str] = fields or {}
