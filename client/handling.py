"""One call of a push consumer's handler: its time limit, and the settling of its message."""

from __future__ import annotations

import inspect
import logging

import anyio

from .errors import HandlerTimeoutError
from .handler_result import check_result
from .message import for_log
from .push_options import RetryLater
from .pushed_message import PushedMessage
from .reports import Handler

logger = logging.getLogger(__name__)


async def handle(handler: Handler, message: PushedMessage, timeout_s: float) -> None:
    """Call the handler: acknowledge the message if it returns, else have it redelivered.

    Args:
      handler: async or plain.
      message: not settled.
      timeout_s: time limit of an async handler, which is cancelled then.
    """
    try:
        with anyio.move_on_after(timeout_s) as scope:
            outcome: object = handler(message)
            if inspect.isawaitable(outcome):
                outcome = await outcome
            check_result(outcome)
    except RetryLater as retry:
        await message.retry(retry.delay_level)
    except Exception as error:
        logger.exception("the handler failed for %s; it will be redelivered", for_log(message))
        await message.retry(cause=error)
    else:
        if scope.cancelled_caught:
            late = HandlerTimeoutError(message.message_id, timeout_s)
            logger.error("%s; the message will be redelivered", late)
            await message.retry(cause=late)
        else:
            message.ack()
