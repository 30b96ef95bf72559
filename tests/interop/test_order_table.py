"""Our table of messages in order and Apache's class: the same steps, and each other's file."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from trocket.broker.pop.order_info_manager import ConsumerOrderInfoManager
from trocket.common.clock import SystemClock
from trocket.disk.json_config import parse
from trocket.interop.oracle import Oracle
from trocket.remoting.receipt import OrderCounts, QueueKey, TopicForm, encode_order_counts

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("java")]

RUNS, STEPS, QUEUES = 150, 40, 2
HOUR_MS: Final = 3_600_000
ATTEMPTS: Final = (None, "a", "b", 'c"5,6:{\u00e9')

Step = dict[str, Any]


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oracle]:
    folder: Path = tmp_path_factory.mktemp("oracle")
    with Oracle("5.5.0", folder) as made:
        yield made


class Run:
    """Random steps, as a broker would take them, with what our table says to each.

    Times lie an hour and more from now, so that both sides judge them alike.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._now_ms = SystemClock().wall_ms()
        self._count = 0
        self.table = ConsumerOrderInfoManager(save=lambda name, text: None)
        self.committed = dict.fromkeys(range(QUEUES), 0)
        self._attempts: dict[int, str | None] = {}
        self.steps: list[Step] = []
        self.ours: list[object] = []

    def take(self) -> None:
        """One step that is allowed now."""
        queue = self._random.randrange(QUEUES)
        attempt = self._random.choice(ATTEMPTS)
        step: Step = {"queue": queue, "attempt": attempt, "invisible": HOUR_MS}
        info = self.table.find("T", "G", queue)
        is_blocked = self.table.check_block(
            attempt, "T", "G", queue, invisible_time=HOUR_MS, now_ms=self._now_ms
        )
        self._note({**step, "do": "blocked"}, is_blocked)
        is_same = attempt is not None and self._attempts.get(queue) == attempt
        start = self.committed[queue]
        if not is_blocked and not is_same:
            count = self._random.randint(1, 5)
            self._pop(step, sorted(self._random.sample(range(start, start + 8), count)))
        elif is_same and info is not None and not info.acked:
            # With other messages Apache's class also names the counts of those before.
            self._pop(step, list(info.offsets))
        elif info is not None and self._random.random() < 0.6:
            offset = self._random.choice([*info.offsets, info.offsets[-1] + 1])
            if offset >= self.committed[queue]:
                self._ack(step, offset, self._random.choice([info.pop_time] * 5 + [1]))
        elif info is not None:
            ahead = self._random.choice((-HOUR_MS, HOUR_MS))
            self._change(step, self._random.choice(info.offsets), info.pop_time, ahead)

    def _pop(self, step: Step, offsets: list[int]) -> None:
        self._count += 1
        queue = step["queue"]
        self._attempts[queue] = step["attempt"]
        # Now and then the messages are visible at once.
        pop_time = self._now_ms - self._random.choice((0, 0, 2 * HOUR_MS)) + self._count
        info = self.table.update(
            step["attempt"], "T", "G", queue,
            pop_time=pop_time, invisible_time=HOUR_MS, offsets=offsets,
        )  # fmt: skip
        key = QueueKey(TopicForm.NORMAL, queue)
        counts = encode_order_counts([OrderCounts(key, info.consumed or {}, info.times)])
        step = {**step, "do": "pop", "pop_time": pop_time, "offsets": offsets}
        self._note(step, sorted(counts.split(";")))

    def _ack(self, step: Step, offset: int, pop_time: int) -> None:
        queue = step["queue"]
        following = self.table.commit_and_next("T", "G", queue, offset, pop_time=pop_time)
        self.committed[queue] = max(self.committed[queue], following)
        self._note({**step, "do": "ack", "offset": offset, "pop_time": pop_time}, following)

    def _change(self, step: Step, offset: int, pop_time: int, ahead: int) -> None:
        visible = self._now_ms + ahead
        self.table.update_next_visible_time(
            "T", "G", step["queue"], offset, pop_time=pop_time, visible_ms=visible
        )
        step = {**step, "do": "change", "offset": offset, "pop_time": pop_time}
        self._note({**step, "visible": visible}, None)

    def _note(self, step: Step, ours: object) -> None:
        self.steps.append(step)
        self.ours.append(ours)


def theirs(results: list[object]) -> list[object]:
    """Apache's results; the order of a Java map does not count."""
    return [sorted(each.split(";")) if isinstance(each, str) else each for each in results]


def entries(text: str) -> dict[str, Any]:
    """The entries of a file that still have messages, without what the clock gave."""
    found: dict[str, Any] = {}
    for key, queues in parse(text.encode())["table"].items():
        for queue, entry in queues.items():
            if entry["cm"] != (1 << len(entry["o"])) - 1:
                found[f"{key} {queue}"] = {
                    # A text that only the tolerant parser reads has numbers as keys.
                    name: {int(key): each for key, each in value.items()}
                    if isinstance(value, dict)
                    else value
                    for name, value in entry.items()
                    if name != "l" and (name != "oc" or value)
                }
    return found


def test_the_same_steps_give_the_same_answers_and_the_same_file(oracle: Oracle) -> None:
    runs = [Run(seed) for seed in range(RUNS)]
    for run in runs:
        for _ in range(STEPS):
            run.take()
    asked = [("order_table", {"steps": run.steps, "text": None}) for run in runs]
    for run, answer in zip(runs, oracle.ask_all(asked), strict=True):
        assert not answer.error
        for step, ours, apaches in zip(
            run.steps, run.ours, theirs(answer.value["results"]), strict=True
        ):
            assert ours == apaches, (step, json.dumps(run.steps))
        assert entries(answer.value["text"]) == entries(run.table.encode().decode())


def test_each_side_reads_the_file_of_the_other_and_goes_on(oracle: Oracle) -> None:
    runs = [Run(seed) for seed in range(RUNS)]
    for run in runs:
        for _ in range(STEPS):
            run.take()
    texts = [run.table.encode().decode() for run in runs]
    read = oracle.ask_all([("order_table", {"steps": [], "text": text}) for text in texts])
    for run, text, answer in zip(runs, texts, read, strict=True):
        assert entries(answer.value["text"]) == entries(text)
        run.table.decode(answer.value["text"].encode())
        assert entries(run.table.encode().decode()) == entries(text)
        run.steps.clear()
        run.ours.clear()
        for _ in range(STEPS):
            run.take()
    asked = [
        ("order_table", {"steps": run.steps, "text": text})
        for run, text in zip(runs, texts, strict=True)
    ]
    for run, answer in zip(runs, oracle.ask_all(asked), strict=True):
        assert theirs(answer.value["results"]) == run.ours
