"""Warnings near the limit of topics, and the remark at the limit. Pure, but for the log."""

from __future__ import annotations

import logging

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
                "more fit. At the limit new topics are refused, also retry topics of new "
                "consumer groups; existing ones still work. Delete topics that are not used, or "
                "create new ones on another broker",
                {"topics": after, "limit": count_max, "left": count_max - after},
            )
            return


def limit_remark(topic: str, count_max: int) -> str:
    """The remark to a client that refuses a new topic at the limit."""
    return (
        f"topic[{topic}] is not created: this broker has {count_max} topics, which is its limit. "
        "Delete topics that are not used, or use another broker"
    )
