"""The dead letters of `dlq_report`'s demo, sent back to their original topics."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from trocket.common.terminal import grouped, show
from trocket.spark.jobs.demo import Stage
from trocket.spark.jobs.demo.dlq_report import TOPICS
from trocket.spark.jobs.demo.dlq_report import fill as fill

__all__ = ["arguments", "check", "fill"]


def arguments(stage: Stage, answers: dict[str, Any]) -> list[str]:
    """The job's command line."""
    audit = str(stage.results / "audit")
    return ["--name-server", stage.name_server, "--rate", "0", "--audit", audit]


def check(stage: Stage, answers: dict[str, Any]) -> bool:
    """Check that each rejected message is in its topic once more, and only once."""
    again = Counter(
        json.loads(each.body)["order"]
        for topic in TOPICS
        for each in stage.broker.messages(topic)
        if "REPLAY_ID" in each.properties
    )
    expected = {order for orders in answers["dead"].values() for order in orders}
    show(
        ("given up", "sent again"), [(len(expected), again.total())], title="Checked", cell=grouped
    )
    return dict(again) == dict.fromkeys(expected, 1)
