"""Telemetry, Heartbeat, NotifyClientTermination."""

from __future__ import annotations

from typing import Any

from .builders import consumer_settings, producer_settings, resource, wrong_calls
from .call import Call, Group, Script, Step, Talk, Topic, endpoints
from .wrong_fields import wrong_fields

_TOPIC, _GROUP = "client", "client-group"
_CLIENT_TYPES = range(8)


def _beat(name: str, client: str, **fields: Any) -> Call:
    return Call(name, "Heartbeat", fields, client=client)


def _talks() -> Script:
    steps: list[Step] = [
        Topic(_TOPIC),
        Group(_GROUP),
        Group("client-exponential", {
            "groupRetryPolicy": {
                "type": "EXPONENTIAL",
                "exponentialRetryPolicy": {"initial": 1000, "max": 60000, "multiplier": 3},
            },
            "retryMaxTimes": 5,
        }),
        Group("client-customized", {
            "groupRetryPolicy": {
                "type": "CUSTOMIZED",
                "customizedRetryPolicy": {"next": [1000, 2000]},
            },
        }),
        Group("client-fifo", {"consumeMessageOrderly": True, "retryMaxTimes": 0}),
        Talk("a producer", (producer_settings(_TOPIC),), client="producer"),
        Talk("a producer again", (producer_settings(_TOPIC),), client="producer"),
        _beat("of a producer", "producer", client_type=1),
        _beat("of a producer as a consumer", "producer", client_type=2, group=resource(_GROUP)),
        Talk("a consumer at once", (consumer_settings(_TOPIC, _GROUP),), client="producer"),
        Talk("a second stream", (producer_settings(_TOPIC),), client="producer", is_new=True),
        Call("of a producer", "NotifyClientTermination", client="producer"),
        Call("of a producer again", "NotifyClientTermination", client="producer"),
        _beat("after the termination", "producer", client_type=1),
        Talk("a producer of no topic", (producer_settings(),), client="no-topic"),
        Talk("a producer of an unknown topic", (producer_settings("client-no"),), client="unknown"),
        Talk("a producer of a system topic", (producer_settings("TBW102"),), client="system"),
        Talk("a producer of two topics", (producer_settings(_TOPIC, "client-no"),), client="two"),
    ]  # fmt: skip
    for group in (_GROUP, "client-exponential", "client-customized", "client-fifo", "client-new",
                  "CID_RMQ_SYS_x", "a b", "", "%RETRY%g"):  # fmt: skip
        client = f"of-{group or 'none'}"
        steps += (
            Talk(f"a consumer of {group!r}", (consumer_settings(_TOPIC, group),), client=client),
            _beat(f"of a consumer of {group!r}", client, client_type=3, group=resource(group)),
            Call(f"of a consumer of {group!r}", "NotifyClientTermination",
                 {"group": resource(group)}, client=client),
        )  # fmt: skip
    for kind in _CLIENT_TYPES:
        steps += (
            Talk(f"a consumer of the type {kind}", (consumer_settings(_TOPIC, _GROUP, kind),),
                 client=f"consumer-{kind}"),
            _beat(f"of a consumer of the type {kind}", f"consumer-{kind}",
                  client_type=kind, group=resource(_GROUP)),
            Call(f"of a consumer of the type {kind}", "NotifyClientTermination",
                 {"group": resource(_GROUP)}, client=f"consumer-{kind}"),
            Talk(f"a producer of the type {kind}", (producer_settings(_TOPIC, client_type=kind),),
                 client=f"producer-{kind}"),
            _beat(f"of a producer of the type {kind}", f"producer-{kind}", client_type=kind),
            Call(f"of a producer of the type {kind}", "NotifyClientTermination",
                 client=f"producer-{kind}"),
        )  # fmt: skip
    for kind, expression in ((1, ""), (1, "||"), (1, "a || b"), (2, "k = 1"), (2, "k = "), (2, ""),
                             (0, "*"), (9, "*")):  # fmt: skip
        by = {"type": kind, "expression": expression}
        settings = consumer_settings(_TOPIC, _GROUP, expression=by)
        steps.append(Talk(f"a consumer by {expression!r} of the kind {kind}", (settings,),
                          client=f"by-{kind}-{len(expression)}"))  # fmt: skip
    steps += (
        Talk(
            "a consumer of an unknown topic", (consumer_settings("client-no", _GROUP),), client="no"
        ),
        Talk("a consumer of a system topic", (consumer_settings("TBW102", _GROUP),), client="sys"),
        _beat("without settings", "stranger", client_type=1),
        Call("without settings", "NotifyClientTermination", client="stranger"),
    )
    return Script("clients", tuple(steps))


_OTHERS: dict[str, Any] = {
    "an empty command": {},
    "a status": {"status": {"code": 20000, "message": "OK"}},
    "empty settings": {"settings": {}},
    "settings of neither": {"settings": {"client_type": 1}},
    "settings of neither, with client properties": {"settings": {"client_properties": {"a": "b"}}},
    "a stack": {"thread_stack_trace": {"nonce": "1", "thread_stack_trace": "x"}},
    "a result": {"status": {"code": 20000}, "verify_message_result": {"nonce": "1"}},
    "an order to recover": {"recover_orphaned_transaction_command": {"transaction_id": "x"}},
    "an order to print": {"print_thread_stack_trace_command": {"nonce": "1"}},
    "an order to verify": {"verify_message_command": {"nonce": "1"}},
    "an order to connect anew": {"reconnect_endpoints_command": {"nonce": "1"}},
    "an order of lite topics": {"notify_unsubscribe_lite_command": {"lite_topic": "x"}},
    "an unknown command": b"\xf2\x06\x00",
    "bytes that are no command": b"\xff\xff\xff",
}


def _others() -> Script:
    """Commands that are no settings, as the first and after settings."""
    steps: list[Step] = [Topic("other"), Group("other-group")]
    settings = producer_settings("other")
    ends = [number for number, words in enumerate(_OTHERS) if "settings" in words]
    for number, (words, command) in enumerate(_OTHERS.items()):
        steps += (
            Talk(f"{words} first", (command, settings) if number not in ends else (command,),
                 closes=True, client=f"first-{number}"),
            Talk(f"settings before {words}", (settings,), client=f"then-{number}"),
            Talk(f"{words} after settings", (command, settings), closes=True,
                 client=f"then-{number}"),
        )  # fmt: skip
    steps += (
        Talk("nothing", (), closes=True, answers=0, client="nothing"),
        Talk("settings twice at once", (settings, settings), answers=2, client="twice"),
        Talk("settings and the end", (settings,), closes=True, client="end"),
        _beat("after the end of the stream", "end", client_type=1),
    )
    return Script("commands", tuple(steps))


def _wrong_settings() -> Script:
    steps: list[Step] = [Topic("setting"), Group("setting-group")]
    more: dict[str, Any] = {
        "access_point": endpoints,
        "backoff_policy": {
            "max_attempts": 3,
            "exponential_backoff": {
                "initial": {"seconds": 1},
                "max": {"seconds": 2},
                "multiplier": 2,
            },
        },
        "metric": {"on": True},
        "client_properties": {"a": "b"},
    }
    at = {"scheme": 1, "addresses": [{"host": "127.0.0.1", "port": 1234}]}
    for about, right in (
        ("producer", producer_settings("setting", **more | {"access_point": at})),
        ("consumer", consumer_settings("setting", "setting-group", **more | {"access_point": at})),
    ):
        other = "settings.subscription" if about == "producer" else "settings.publishing"
        for words, fields in wrong_fields("TelemetryCommand", right, [other]):
            # Not the other commands, nor none.
            if not words.startswith("settings") or words == "settings absent":
                continue
            client = f"{about}-{len(steps)}"
            steps.append(Talk(f"{about}, {words}", (fields,), closes=True, client=client))
    return Script("wrong-settings", tuple(steps))


def _wrong_beats() -> Script:
    right = {"group": resource("beat-group"), "client_type": 3}
    return Script(
        "wrong-heartbeats",
        (
            Topic("beat"),
            Group("beat-group"),
            Talk("settings of beats", (consumer_settings("beat", "beat-group"),)),
            *wrong_calls("Heartbeat", right),
            *wrong_calls("Heartbeat", right, about="without settings", client="other"),
            Call("a good one", "Heartbeat", right),
            *wrong_calls("NotifyClientTermination", {"group": resource("beat-group")}),
        ),
    )


SCRIPTS = (_talks(), _others(), _wrong_settings(), _wrong_beats())
