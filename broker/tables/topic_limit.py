"""The limits of new topics: their number, and the rate at which first sends create them.

Pure, but for the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...remoting.errors import RequestRefused
from ...remoting.refusals import Refusals
from ...remoting.response_codes import ResponseCode
from ..settings.creation_rate import CreationRate

if TYPE_CHECKING:
    from ..settings.config import BrokerConfig

logger = logging.getLogger(__name__)

WARNED_PERCENT = (80, 90, 95, 99)
"""Shares of the limit at which a line is logged when the number of topics passes them."""


def warn_near_limit(before: int, after: int, count_max: int) -> None:
    """Log a WARNING when the number of topics passes a share of the limit, once for each share.

    Args:
      before, after: topics before and after a change.
      count_max: the limit, > 0.
    """
    for percent in reversed(WARNED_PERCENT):
        bound = count_max * percent // 100
        if before < bound <= after:
            logger.warning(
                "there are %(topics)d topics, and this broker's limit is %(limit)d: %(left)d "
                "more fit (topicsMax). At the limit new topics are refused, also retry topics of "
                "new consumer groups; existing ones still work. Delete topics that are not used, "
                "or create new ones on another broker",
                {"topics": after, "limit": count_max, "left": count_max - after},
            )
            return


def limit_remark(topic: str, count_max: int) -> str:
    """The remark to a client that refuses a new topic at the limit."""
    return (
        f"topic[{topic}] is not created: this broker has {count_max} topics, which is its limit "
        "(topicsMax). Delete topics that are not used, or use another broker"
    )


class NewTopics:
    """Refuses topics that clients create.

    Args:
      config: the broker's; read at each use.
      now_s: a monotonic clock, seconds.
      refusals: counts what is refused.
    """

    def __init__(
        self, config: BrokerConfig, now_s: Callable[[], float], refusals: Refusals
    ) -> None:
        self._rate = CreationRate(config.topic_rates, config.limit_exempt_addresses, now_s)
        self._refusals = refusals

    def note_full(self, topic: str, remote_address: str, count: int) -> None:
        """Record that a topic is not created, because there are `count`, which is the limit."""
        what = f"topic {topic} is not created (delete topics that are not used): there are {count}"
        self._refusals.note("topicsMax", remote_address or "the broker", what)

    def take(self, topic: str, remote_address: str) -> None:
        """Count a topic that a first send creates.

        Raises: RequestRefused: SYSTEM_BUSY if too many were created lately.
        """
        key = self._rate.take(remote_address)
        if key is not None:
            reason = f"topic[{topic}] is not created now, because too many were lately"
            self._refusals.note(key, remote_address, reason)
            raise RequestRefused(ResponseCode.SYSTEM_BUSY, f"{reason}, which is the limit {key}")
