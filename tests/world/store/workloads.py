"""Workloads of the simulated brokers: lists of steps, from a seed."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from .session import COMMIT, PREPARED, ROLLBACK, SCHEDULE_TOPIC, Step

HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
OP = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
LONG_TOPIC = "Long" * 40


def put_step(random: Random, topic: str = "", queue_id: int = -1, **more: object) -> Step:
    """A message of some size; some have long properties, keys, tags, IPv6 hosts."""
    topic = topic or random.choice(("T", "T", "T", "Other"))
    queue_id = random.randrange(2) if queue_id < 0 else queue_id
    size = random.choice((0, 10, 60, 200, 450, 900))
    return ("put_with", topic, queue_id, size, {
        "padding": random.choice((0, 0, 0, 40, 600)),
        "key": random.choice(("", "", "a", "a b", "order-17")),
        "tag": random.choice(("", "TagA", "TagB")),
        "v6": random.random() < 0.1,
        "nul": random.random() < 0.1,
        **more,
    })  # fmt: skip


def settle(random: Random) -> list[Step]:
    """What the services may do between two bursts."""
    steps: list[Step] = []
    if random.random() < 0.55:
        steps.append(("flush",))
    if random.random() < 0.15:
        steps.append(("queues", random.choice((1, 3))))
    if random.random() < 0.10:
        steps.append(("checkpoint",))
    if random.random() < 0.25:
        steps.append(("index",))
    if random.random() < 0.15:
        steps.append(("prepare",))
    return steps


def burst(random: Random, count_max: int = 4, **more: Any) -> list[Step]:
    """Some puts and their commit."""
    puts = [put_step(random, **more) for _ in range(random.randint(1, count_max))]
    return [*puts, ("commit",)]


def put(random: Random, length: int) -> list[Step]:
    """Plain messages."""
    return [step for _ in range(length) for step in (*burst(random), *settle(random))]


def batch(random: Random, length: int) -> list[Step]:
    """Batches between plain messages."""
    steps: list[Step] = []
    for _ in range(length):
        sizes = [random.choice((0, 20, 120, 300)) for _ in range(random.randint(1, 6))]
        steps += [("batch", "T", random.randrange(2), sizes), *burst(random, 1), *settle(random)]
    return steps


def roll(random: Random, length: int) -> list[Step]:
    """Large messages: a new log file every few of them, made ahead or not."""
    steps: list[Step] = []
    for _ in range(length):
        count = random.randint(1, 3)
        steps += [
            ("put", "T", random.randrange(2), random.randrange(900, 2500)) for _ in range(count)
        ]
        steps += [("commit",), *settle(random)]
        if random.random() < 0.4:
            steps.append(("prepare",))
    return steps


def delay(random: Random, length: int) -> list[Step]:
    """Delayed messages: their tags code is the time to deliver them."""
    steps: list[Step] = []
    for _ in range(length):
        for _ in range(random.randint(1, 3)):
            level = random.randint(1, 4)
            steps.append(put_step(random, SCHEDULE_TOPIC, level - 1, level=level, tag="TagD"))
        steps += [("commit",), *burst(random, 1), *settle(random)]
    return steps


def transaction(random: Random, length: int) -> list[Step]:
    """Half messages as 4.3 and later keep them, as 3.x did, commits and rollbacks."""
    steps: list[Step] = []
    for _ in range(length):
        kind = random.randrange(4)
        if kind == 0:
            steps.append(put_step(random, HALF, 0))
        elif kind == 1:
            steps.append(put_step(random, "T", 0, sys_flag=PREPARED))
        elif kind == 2:
            steps += [put_step(random, "T", 1, sys_flag=COMMIT), put_step(random, OP, 0)]
        else:
            steps.append(put_step(random, "T", 0, sys_flag=ROLLBACK))
        if random.random() < 0.7:
            steps += [("commit",), *settle(random)]
    return [*steps, ("commit",), ("flush",)]


def index(random: Random, length: int) -> list[Step]:
    """Many keys: index files fill up."""
    steps: list[Step] = []
    for _ in range(length):
        count = random.randint(2, 4)
        steps += [put_step(random, "T", 0, key="a b c", padding=0) for _ in range(count)]
        steps += [("commit",), ("index",), *settle(random)]
    return steps


def config(random: Random, length: int) -> list[Step]:
    """A configuration file is saved again and again."""
    steps: list[Step] = []
    for _ in range(length):
        steps.append(("save",))
        if random.random() < 0.3:
            steps += [*burst(random, 1), *settle(random)]
        if random.random() < 0.1:
            steps.append(("stop",))
    return steps


def truncate(random: Random, length: int) -> list[Step]:
    """Crash, recover, go on, and crash again."""
    steps: list[Step] = []
    for _ in range(length):
        steps += [*burst(random), *settle(random)]
        if random.random() < 0.3:
            steps.append(("crash", random.choice(("all", "none", "prefix", "torn", "torn"))))
    return steps


def clean_stop(random: Random, length: int) -> list[Step]:
    """Stop and start."""
    steps: list[Step] = []
    for _ in range(length):
        steps += [*burst(random), *settle(random)]
        if random.random() < 0.35:
            steps.append(("stop",))
    return steps


def delete_topic(random: Random, length: int) -> list[Step]:
    """Topics come and go."""
    steps: list[Step] = []
    for _ in range(length):
        steps += [*burst(random), *settle(random)]
        if random.random() < 0.2:
            steps.append(("delete", random.choice(("T", "Other"))))
        if random.random() < 0.1:
            steps.append(("crash", "all"))
    return steps


def retention(random: Random, length: int) -> list[Step]:
    """Hours pass, old files go."""
    steps: list[Step] = []
    for _ in range(length):
        steps += [*burst(random), *settle(random)]
        if random.random() < 0.5:
            steps.append(("sleep", random.choice((0.3, 0.7, 1.2))))
        if random.random() < 0.3:
            steps.append(("checkpoint",))
        if random.random() < 0.4:
            steps.append(("retain",))
        if random.random() < 0.08:
            steps.append(random.choice((("stop",), ("crash", "all"), ("crash", "prefix"))))
    return steps


def mixed(random: Random, length: int) -> list[Step]:
    """All of it."""
    steps: list[Step] = []
    for _ in range(length):
        part = random.choice((put, batch, roll, delay, transaction, config, truncate, clean_stop))
        steps += part(random, 1)
        if random.random() < 0.05:
            steps += [("put", LONG_TOPIC, 0, 20), ("commit",)]
    return steps


Workload = Callable[[Random, int], list[Step]]

WORKLOADS: dict[str, tuple[Workload, int]] = {
    "put": (put, 18),
    "batch": (batch, 16),
    "roll": (roll, 14),
    "delay": (delay, 16),
    "transaction": (transaction, 30),
    "index": (index, 12),
    "config": (config, 16),
    "truncate": (truncate, 16),
    "clean_stop": (clean_stop, 12),
    "delete_topic": (delete_topic, 16),
    "retention": (retention, 26),
    "mixed": (mixed, 22),
}
"""By name: how to make the steps, and how many turns make a run."""
