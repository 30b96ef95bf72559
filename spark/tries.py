"""Retries of requests that fail for a while: a broker restarts, or the network breaks."""

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

# RouteNotFoundError is transient, too: a broker that stops cleanly unregisters its topics at the
# name servers, and registers them again when it starts.
PASSING: Final = (ConnectError, RequestTimeoutError, RouteNotFoundError)
PASSING_CODES: Final = (ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE)
"""Transient errors: the next try may succeed."""


def again(options: ConnectionOptions, ask: Callable[[], T]) -> T:
    """Call `ask`, and up to numRetries times again after transient errors.

    Raises: the error of the last try.
    """
    for left in range(options.num_retries, 0, -1):
        try:
            return ask()
        except ClientError as error:
            if not _is_passing(error):
                raise
            text = "%s; retrying in %d ms, %d tries left"
            logger.warning(text, error, options.retry_interval_ms, left)
        threading.Event().wait(options.retry_interval_ms / 1000)
    return ask()


def _is_passing(error: ClientError) -> bool:
    if isinstance(error, SendError):
        error = error.attempts[-1].error
    if isinstance(error, ServerError) and error.code in PASSING_CODES:
        return True
    return isinstance(error, PASSING)
