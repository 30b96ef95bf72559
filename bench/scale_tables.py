"""What a broker's queues and consumer groups cost, by their number."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final

from trocket.bench.frames import BODY, pull_fields, send_fields
from trocket.bench.kit import resident_mb, running
from trocket.bench.scale_curve import Curve
from trocket.bench.scale_meter import (
    Caller,
    Curves,
    Pace,
    Request,
    Task,
    cpu_percent,
    cpu_s,
    cpu_us,
    probed,
    wait_until_quiet,
)
from trocket.common.steps import in_parts
from trocket.interop.trocket_peer import TrocketPair
from trocket.remoting.bodies import (
    ConsumerData,
    HeartbeatData,
    SubscriptionData,
    TopicConfig,
)
from trocket.remoting.bodies.topic import CreateTopicListRequestBody
from trocket.remoting.request_codes import RequestCode as Code

QUEUES_PER_TOPIC: Final = 10
TOPICS_OF_A_REQUEST: Final = 100
PROBE: Final = "Probe"
PROBE_QUEUES: Final = 4
FLUSH_MS: Final = 1_000
"""Between two saves of offsets: five times as often as by default, for more saves to measure."""
FIRST_SAVE_S: Final = 60.0
"""At most, until the file of offsets exists."""
PULLS_OF_A_CONNECTION: Final = 1_000
PULL_S: Final = 600.0
"""Longer than the measurement of held pulls."""
BROKER_KEYS: Final[dict[str, object]] = {
    "mappedFileSizeConsumeQueue": 20_000,  # a thousand units, so that files stay small
    "mappedFileSizeCommitLog": 1 << 27,
    "flushConsumerOffsetInterval": FLUSH_MS,
    "connectionsMax": 100_000,
    "groupsMax": 100_000,
    "autoCreateGroupsPerMinute": 1_000_000,
    "heldPullsMax": 1_000_000,
    "heldPullsPerGroupMax": 1_000_000,
}
"""Limits that would end a measurement are out of the way."""
PROPERTIES: Final = "UNIQ_KEY\x017F0000010B2A18B4AAC2123456780000\x02WAIT\x01true\x02"


def send_to(topic: str, queue_id: int) -> Request:
    """A send of 128 bytes."""
    return Request(Code.SEND_MESSAGE_V2, send_fields("scale", topic, queue_id, PROPERTIES), BODY)


def create_topics(caller: Caller, names: Sequence[str], queue_count: int) -> None:
    """Create topics, a hundred in a request."""
    for some in in_parts(names, TOPICS_OF_A_REQUEST):
        topics = [
            TopicConfig(topic_name=name, read_queue_nums=queue_count, write_queue_nums=queue_count)
            for name in some
        ]
        body = CreateTopicListRequestBody(topic_config_list=topics).to_body()
        caller.call(Request(Code.UPDATE_AND_CREATE_TOPIC_LIST, {}, body))


def disk_mb(folder: Path) -> float:
    """MB of disk that the files of a folder take."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file()) / 1e6


# ---- queues ----------------------------------------------------------------------------------


def queues(task: Task) -> list[Curve]:
    """A broker with more and more queues, ten in a topic, each with a message or more."""
    curves, pace = task.curves("queues of the broker"), task.pace
    with running(TrocketPair(task.folder, broker_keys=BROKER_KEYS)) as cluster:
        pid, address = cluster.pids[0], cluster.broker_address
        with Caller(address) as caller:
            create_topics(caller, [PROBE], PROBE_QUEUES)
            bare_mb, known = resident_mb(pid), 0
            for size in task.sizes:
                names = _names(known, size)
                create_topics(caller, names, QUEUES_PER_TOPIC)
                wait_until_quiet(pid)
                new = [(name, queue) for name in names for queue in range(QUEUES_PER_TOPIC)]
                before_s = cpu_s(pid)
                caller.call_all(send_to(*key) for key in new)
                known = size
                time.sleep(pace.rest_s)
                wait_until_quiet(pid)
                first_us = (cpu_s(pid) - before_s) * 1e6 / len(new)
                curves.add("a queue's first message and its file", "µs CPU", 0, size, first_us)
                curves.add(
                    "memory above that of no queue", "MB", 1, size, resident_mb(pid) - bare_mb
                )
                curves.add("disk", "MB", 1, size, disk_mb(task.folder / "store"))
                _requests(curves, cluster, caller, size, pace)
                time.sleep(pace.rest_s)
                _periods(curves, cluster, size, pace)
    return curves.all()


def _names(known: int, size: int) -> list[str]:
    return [
        f"Scale-{number}" for number in range(known // QUEUES_PER_TOPIC, size // QUEUES_PER_TOPIC)
    ]


def _key(number: int, size: int) -> tuple[str, int]:
    place = number % size
    return f"Scale-{place // QUEUES_PER_TOPIC}", place % QUEUES_PER_TOPIC


def _requests(curves: Curves, cluster: TrocketPair, caller: Caller, size: int, pace: Pace) -> None:
    """Costs of sends, of new topics and of registrations."""
    pid, namesrv_pid = cluster.pids
    step = max(size // pace.count, 1)  # so that all parts of the table are met
    to_all = cpu_us(pid, caller, lambda number: send_to(*_key(number * step, size)), pace)
    curves.add("a send, to all queues in turn", "µs CPU", 0, size, to_all)
    to_one = cpu_us(pid, caller, lambda _: send_to(*_key(0, size)), pace)
    curves.add("a send, to one queue", "µs CPU", 0, size, to_one)
    saves, registrations, names, waits = [], [], [], []
    for number in range(2 * pace.rounds):
        before_s, begin_s = cpu_s(pid), time.perf_counter()
        create_topics(caller, [f"New-{size}-{number}"], 1)
        waits.append((time.perf_counter() - begin_s) * 1e3)
        time.sleep(pace.settle_s)  # the save and the registration may end after the answer
        saves.append((cpu_s(pid) - before_s) * 1e3)
    for number in range(2 * pace.rounds):
        before_s, names_s = cpu_s(pid), cpu_s(namesrv_pid)
        permission = b"brokerPermission=%d" % (4 if number % 2 else 6)
        caller.call(Request(Code.UPDATE_BROKER_CONFIG, {}, permission))
        caller.call(Request(Code.UPDATE_BROKER_CONFIG, {}, b"brokerPermission=6"))
        time.sleep(pace.settle_s)
        registrations.append((cpu_s(pid) - before_s) * 1e3 / 2)
        names.append((cpu_s(namesrv_pid) - names_s) * 1e3 / 2)
    curves.add("a new topic: save and registration", "ms CPU", 1, size, saves)
    curves.add("a new topic: until the answer", "ms", 1, size, waits)
    curves.add("a registration of all, with a save", "ms CPU", 1, size, registrations)
    curves.add("the same, of the name server", "ms CPU", 1, size, names)
    table_kb = (Path(cluster.folder) / "store/config/topics.json").stat().st_size / 1e3
    curves.add("topics.json", "KB", 1, size, table_kb)


def _periods(curves: Curves, cluster: TrocketPair, size: int, pace: Pace) -> None:
    """Costs of what happens at intervals: idle, with one producer, and with held pulls."""
    pid, address, seconds = cluster.pids[0], cluster.broker_address, pace.seconds
    curves.add("idle", "% CPU", 1, size, cpu_percent(pid, seconds))
    probes = [probed(pid, address, PROBE, seconds, None) for _ in range(pace.rounds)]
    busy = [each.cpu_percent for each in probes]
    curves.add("with 50 sends a second", "% CPU", 1, size, busy)
    curves.add_probes("those sends", size, probes)
    before_mb = resident_mb(pid)
    with ExitStack() as stack:
        for start in range(0, size, PULLS_OF_A_CONNECTION):
            one = stack.enter_context(Caller(address))
            one.send(
                Request(
                    Code.PULL_MESSAGE,
                    pull_fields("scale", *_key(number, size), 1 << 40, wait_s=PULL_S),
                )
                for number in range(start, min(start + PULLS_OF_A_CONNECTION, size))
            )
        time.sleep(pace.settle_s)
        curves.add("idle, with a held pull for each", "% CPU", 1, size, cpu_percent(pid, seconds))
        held_mb = max(resident_mb(pid) - before_mb, 0)
        curves.add("memory of the held pulls", "MB", 1, size, held_mb)
    time.sleep(pace.settle_s)  # the broker forgets them


# ---- groups ----------------------------------------------------------------------------------

TOPICS_OF_GROUPS: Final = 10


def heartbeat(client: int, group: int, topic: str) -> Request:
    """The heartbeat of one consumer."""
    beat = HeartbeatData(
        client_id=f"client-{client}@scale",
        consumer_data_set=[
            ConsumerData(
                group_name=f"group-{group}",
                subscription_data_set=[
                    SubscriptionData(topic=topic, sub_string="*", sub_version=1)
                ],
            )
        ],
    )
    return Request(Code.HEART_BEAT, {}, beat.to_body())


def _topic_of(group: int) -> str:
    return f"Groups-{group % TOPICS_OF_GROUPS}"


def _commit(group: int, queue: int) -> Request:
    fields = {
        "consumerGroup": f"group-{group}", "topic": _topic_of(group), "queueId": queue,
        "commitOffset": 1,
    }  # fmt: skip
    return Request(Code.UPDATE_CONSUMER_OFFSET, fields)


def _stats(group: int) -> Request:
    return Request(Code.GET_CONSUME_STATS, {"consumerGroup": f"group-{group}", "topic": ""})


def groups(task: Task) -> list[Curve]:
    """A broker with more and more groups, each with a consumer and offsets of four queues."""
    curves, pace = task.curves("consumer groups of the broker"), task.pace
    with running(TrocketPair(task.folder, broker_keys=BROKER_KEYS)) as cluster:
        pid, address = cluster.pids[0], cluster.broker_address
        with Caller(address) as caller:
            topics = [_topic_of(number) for number in range(TOPICS_OF_GROUPS)]
            create_topics(caller, [PROBE, *topics], PROBE_QUEUES)
            queues_of = [(topic, queue) for topic in topics for queue in range(PROBE_QUEUES)]
            caller.call_all(send_to(*key) for key in queues_of)
            bare_mb, known = resident_mb(pid), 0
            for size in task.sizes:
                new = range(known, size)
                caller.call_all(heartbeat(each, each, _topic_of(each)) for each in new)
                caller.call_all(
                    _commit(each, queue) for each in new for queue in range(PROBE_QUEUES)
                )
                known = size
                time.sleep(pace.rest_s)
                curves.add(
                    "memory above that of no group", "MB", 1, size, resident_mb(pid) - bare_mb
                )
                _group_requests(curves, pid, caller, size, pace)
                curves.add("idle", "% CPU", 1, size, cpu_percent(pid, pace.seconds))
                _offset_saves(curves, cluster, caller, size, pace)
    return curves.all()


def _group_requests(curves: Curves, pid: int, caller: Caller, size: int, pace: Pace) -> None:
    beats = [heartbeat(each, each, _topic_of(each)) for each in range(size)]
    costs = cpu_us(pid, caller, lambda number: beats[number % size], pace)
    curves.add("a heartbeat", "µs CPU", 0, size, costs)
    costs = cpu_us(pid, caller, lambda number: _commit(number % size, number % 4), pace)
    curves.add("a commit of an offset", "µs CPU", 0, size, costs)
    some = replace(pace, count=max(pace.count // 10, 1))
    costs = cpu_us(pid, caller, lambda number: _stats(number % size), some)
    curves.add("GET_CONSUME_STATS of a group", "µs CPU", 1, size, costs)


def _offset_saves(
    curves: Curves, cluster: TrocketPair, caller: Caller, size: int, pace: Pace
) -> None:
    """What a save of the offsets costs, and how long it holds up sends."""
    pid = cluster.pids[0]

    def commits(rest_s: float) -> None:
        end_s = time.perf_counter() + rest_s
        while (now_s := time.perf_counter()) < end_s:
            caller.call(_commit(0, 0))
            time.sleep(min(FLUSH_MS / 2e3, end_s - now_s))

    quiet = probed(pid, cluster.broker_address, PROBE, pace.seconds, None)
    probes = [
        probed(pid, cluster.broker_address, PROBE, pace.seconds, commits)
        for _ in range(pace.rounds)
    ]
    of_saves = [max(busy.cpu_percent - quiet.cpu_percent, 0) / 100 * FLUSH_MS for busy in probes]
    curves.add("a save of consumerOffset.json", "ms CPU", 1, size, of_saves)
    curves.add_probes("50 sends a second meanwhile", size, probes)
    table = cluster.folder / "store/config/consumerOffset.json"
    deadline_s = time.perf_counter() + FIRST_SAVE_S
    while not table.exists() and time.perf_counter() < deadline_s:
        time.sleep(FLUSH_MS / 1e4)
    table_kb = table.stat().st_size / 1e3
    curves.add("consumerOffset.json", "KB", 1, size, table_kb)
