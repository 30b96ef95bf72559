"""Lite topics where there are none: what names one, to topics and groups of other kinds."""

from __future__ import annotations

from typing import Any

from .builders import consumer_settings, message, resource, send, wrong_calls
from .call import Call, Group, Script, Step, Talk, Topic

_TOPIC, _GROUP = "lite", "lite-group"
_KINDS = {"push": 5, "simple": 6}


def _script() -> Script:
    sync = {
        "action": 0,
        "topic": resource(_TOPIC),
        "group": resource(_GROUP),
        "lite_topic_set": ["a"],
        "version": 1,
        "offset_option": {"policy": 1},
    }
    steps: list[Step] = [Topic(_TOPIC, "MIXED"), Topic("lite-normal"), Group(_GROUP)]
    for words, kind in _KINDS.items():
        of_it: dict[str, Any] = {"client_type": kind, "group": resource(_GROUP)}
        steps += (
            Talk(f"a {words} consumer", (consumer_settings(_TOPIC, _GROUP, kind),), client=words),
            Call(f"of a {words} consumer", "Heartbeat", of_it, client=words),
            Call(f"of a {words} consumer", "SyncLiteSubscription", sync, client=words),
        )
    steps += (
        send("to a lite topic of another kind", message("lite-normal", lite_topic="a")),
        send("to a lite topic of any kind", message(_TOPIC, lite_topic="a")),
        send("to a lite topic of 65 characters", message(_TOPIC, lite_topic="a" * 65)),
        send("to a lite topic of 64 characters", message(_TOPIC, lite_topic="a" * 64)),
        send("to an empty lite topic", message(_TOPIC, lite_topic="")),
        send("to a lite topic in order", message(_TOPIC, lite_topic="a", message_group="g")),
        *wrong_calls("SyncLiteSubscription", sync),
    )
    return Script("lite-topics", tuple(steps))


SCRIPTS = (_script(),)
