"""A check of what handlers return, by which other clients learn whether a message is done.

Java counterpart: ConsumeConcurrentlyStatus, ConsumeOrderlyStatus.
"""

from __future__ import annotations

from typing import Final

from ..errors import ConfigurationError

_LATER: Final = frozenset({"RECONSUME_LATER", "SUSPEND_CURRENT_QUEUE_A_MOMENT", "ROLLBACK"})
"""Names of states of RocketMQ's listeners by which a message comes again."""


def check_result(result: object) -> None:
    """Check that what a handler returned does not say that it failed.

    Here any return acknowledges the message, which would lose it if the handler meant the opposite.

    Raises: ConfigurationError: it returned False, an exception, or RECONSUME_LATER or the like; the
      message comes again.
    """
    if result is None or result is True:
        return
    name = getattr(result, "name", result)
    says_later = isinstance(name, str) and name.upper() in _LATER
    if result is False or isinstance(result, BaseException) or says_later:
        raise ConfigurationError(
            f"the handler returned {result!r}, and a return acknowledges the message: write `raise"
            " RetryLater()` to have it again (RetryLater(3): after the third delay), and return"
            " nothing when it is done"
        )
