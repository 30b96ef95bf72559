"""RetryPolicy: how often, and after which pauses, a group's messages are delivered again. Pure.

Java counterpart: CustomizedBackoffRetryPolicy and ExponentialBackoffRetryPolicy of
rocketmq-clients.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class RetryPolicy(NamedTuple):
    """What a server says of a group.

    Attributes:
      attempts_max: deliveries of a message, the first one included; after the last one it becomes a
        dead letter.
      delays_s: the pause after each delivery, in seconds; the last one holds for all further ones.
    """

    attempts_max: int
    delays_s: Sequence[float]

    def delay_s(self, reconsume_times: int) -> float:
        """Seconds until the next delivery; `reconsume_times`: of earlier ones."""
        return self.delays_s[min(max(reconsume_times, 0), len(self.delays_s) - 1)]
