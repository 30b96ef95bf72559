"""Waiting for servers that are away for a while: a broker that restarts, a network that breaks."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final, TypeVar

from ..client.errors import (
    ClientError,
    ConnectError,
    RequestTimeoutError,
    RouteNotFoundError,
    SendError,
    ServerError,
)
from ..remoting.response_codes import ResponseCode
from .source_options import ConnectionOptions

logger = logging.getLogger(__name__)

T = TypeVar("T")

# A topic is unknown as long as all of its brokers are away: a broker that is stopped in order
# takes its topics from the name servers, and gives them back when it starts.
PASSING: Final = (ConnectError, RequestTimeoutError, RouteNotFoundError)
PASSING_CODES: Final = (ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE)
"""What may be better the next time."""


def again(options: ConnectionOptions, ask: Callable[[], T]) -> T:
    """Ask once, and again as often as numRetries says while it may get better.

    Raises: whatever the last try raised.
    """
    for left in range(options.num_retries, 0, -1):
        try:
            return ask()
        except ClientError as error:
            if not _is_passing(error):
                raise
            text = "%s; once more in %d ms, and %d times at most"
            logger.warning(text, error, options.retry_interval_ms, left)
        threading.Event().wait(options.retry_interval_ms / 1000)
    return ask()


def _is_passing(error: ClientError) -> bool:
    if isinstance(error, SendError):
        error = error.attempts[-1].error
    if isinstance(error, ServerError) and error.code in PASSING_CODES:
        return True
    return isinstance(error, PASSING)
