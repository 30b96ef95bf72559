"""Warnings before the limit of topics is reached. Pure, but for the log."""

from __future__ import annotations

import logging

logger = logging.getLogger(__name__)

WARNED_PERCENT = (80, 90, 95, 99)
"""Shares of the limit at which a line is logged when the number of topics passes them."""


def warn_near_limit(before: int, after: int, count_max: int) -> None:
    """Log a WARNING when a share of the limit was passed, once for each.

    Args:
      before, after: topics before and after a change.
      count_max: the limit, > 0.
    """
    for percent in reversed(WARNED_PERCENT):
        bound = count_max * percent // 100
        if before < bound <= after:
            logger.warning(
                "there are %d topics, and this broker's limit is %d: %d more fit. At the limit "
                "new topics are refused, also retry topics of new consumer groups; the others go "
                "on. Delete topics that are not used, or put new ones on another broker",
                after, count_max, count_max - after,
            )  # fmt: skip
            return


def limit_remark(topic: str, count_max: int) -> str:
    """Why a new topic is refused, for the client."""
    return (
        f"topic[{topic}] is not created: this broker has its {count_max} topics, and no more are "
        "allowed. Delete topics that are not used, or use another broker"
    )
