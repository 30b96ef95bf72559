"""QueryRoute and QueryAssignment."""

from __future__ import annotations

from .builders import resource, wrong_calls
from .call import Call, Group, Script, Step, Topic, endpoints

_KINDS = ("", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY", "MIXED")
_PERMS = (0, 2, 4, 6)
_QUEUES = ((1, 3), (3, 1), (2, 2), (2, 0))
"""To read and to write. Brokers create no topic without queues to read in the same way."""
_STRANGE = (
    "route-unknown",
    "TBW102",
    "SCHEDULE_TOPIC_XXXX",
    "RMQ_SYS_TRANS_HALF_TOPIC",
    "rmq_sys_wheel_timer",
    "SELF_TEST_TOPIC",
    "BenchmarkTest",
    "OFFSET_MOVED_EVENT",
    "DefaultCluster",
    "broker-a",
    "%RETRY%route-group",
    "%DLQ%route-group",
    "%RETRY%route-unknown",
    "%SYS%route",
    "ns%route",
    "%",
    "a%b%c",
    "rmq_sys_REVIVE_LOG_DefaultCluster",
    "CID_RMQ_SYS_x",
    "a b",
    "a.b",
    "a|b",
    "a" * 127,
    "a" * 128,
    "-",
)
_GROUPS = (
    "route-unknown-group",
    "CID_RMQ_SYS_x",
    "CID_ONSAPI_OWNER",
    "DEFAULT_CONSUMER",
    "TOOLS_CONSUMER",
    "SELF_TEST_C_GROUP",
    "a" * 120,
    "a" * 121,
    "a" * 255,
    "a" * 256,
    "a b",
    "a%b",
    "%RETRY%g",
)


def _route(name: str, topic: str) -> Call:
    return Call(name, "QueryRoute", {"topic": resource(topic), "endpoints": endpoints})


def _assignment(name: str, topic: str, group: str = "route-group") -> Call:
    fields = {"topic": resource(topic), "group": resource(group), "endpoints": endpoints}
    return Call(name, "QueryAssignment", fields)


def _scripts() -> list[Script]:
    known: list[Step] = [
        Group("route-group"),
        Group("route-fifo-group", {"consumeMessageOrderly": True}),
        Group("route-off-group", {"consumeEnable": False}),
    ]
    for kind in _KINDS:
        topic = f"route-{kind or 'none'}"
        known += (
            Topic(topic, kind, reads=2, writes=2),
            _route(f"of messages of the kind {kind or 'none'}", topic),
            _assignment(f"of messages of the kind {kind or 'none'}", topic),
        )
    for perm in _PERMS:
        for reads, writes in _QUEUES:
            topic = f"route-{perm}-{reads}-{writes}"
            words = f"permission {perm}, {reads} queues to read and {writes} to write"
            known += (
                Topic(topic, reads=reads, writes=writes, perm=perm),
                _route(words, topic),
                _assignment(words, topic),
                _assignment(f"in order, {words}", topic, "route-fifo-group"),
            )
    known.append(_assignment("of a group that may not consume", "route-none", "route-off-group"))
    known += (_route(f"of the topic {topic}", topic) for topic in _STRANGE)
    known += (_assignment(f"of the topic {topic}", topic) for topic in _STRANGE)
    known += (_assignment(f"of the group {group}", "route-none", group) for group in _GROUPS)
    topic = "route-wrong"
    fields = {"topic": resource(topic), "endpoints": endpoints}
    more = {**fields, "group": resource("route-group")}
    at = {"scheme": 1, "addresses": [{"host": "127.0.0.1", "port": 1234}]}
    wrong: list[Step] = [
        Topic(topic),
        Group("route-group"),
        *wrong_calls("QueryRoute", {**fields, "endpoints": at}),
        *wrong_calls("QueryAssignment", {**more, "endpoints": at}),
    ]
    for scheme, host in ((1, "10.0.0.1"), (2, "::1"), (3, "broker.example")):
        address = {"scheme": scheme, "addresses": [{"host": host, "port": 80}]}
        wrong += (
            Call(f"by {host}", "QueryRoute", {**fields, "endpoints": address}),
            Call(f"by {host}", "QueryAssignment", {**more, "endpoints": address}),
        )
    several = [{"host": f"10.0.0.{number}", "port": number} for number in range(1, 4)]
    address = {"scheme": 1, "addresses": several}
    wrong.append(Call("by 3 addresses", "QueryRoute", {**fields, "endpoints": address}))
    return [Script("routes", tuple(known)), Script("wrong-routes", tuple(wrong))]


SCRIPTS = tuple(_scripts())
