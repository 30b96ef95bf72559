"""Celery's workers, processes as in production, over a broker in this process."""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from subprocess import DEVNULL, Popen
from typing import Any, TypeAlias

import pytest

from tests.kit.waiting import wait_until
from trocket.testing import Broker

celery = pytest.importorskip("celery", reason="needs celery")

HERE = Path(__file__).parent
SOON_S = 60.0
FILE = "TROCKET_TASKS_FILE"
FOLDER = "TROCKET_RESULTS_FOLDER"
URL = "ROCKETMQ_URL"
Worker: TypeAlias = Popen[bytes]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Has the results of tasks."""
    return tmp_path_factory.mktemp("celery")


@pytest.fixture(scope="module")
def start_worker(broker: Broker, folder: Path) -> Iterator[Callable[..., Worker]]:
    """Starts workers, processes of their own: a worker sets up the logging of its process."""
    with ExitStack() as workers:

        def start(*options: str, **environment: str) -> Worker:
            variables = {URL: broker.url, FOLDER: str(folder), **environment}
            command = [sys.executable, "-m", "celery", "-A", "celery_app", "worker", *options]
            worker = Popen(
                [*command, "--loglevel", "ERROR"],
                cwd=HERE,
                env={**os.environ, **variables},
                stdout=DEVNULL,
            )
            workers.callback(worker.wait)
            workers.callback(worker.kill)
            return worker

        yield start


@pytest.fixture(scope="module")
def tasks(broker: Broker, folder: Path, start_worker: Callable[..., Worker]) -> Iterator[Any]:
    """The application with its tasks, and a worker of threads for them."""
    start_worker("--pool", "threads", "--concurrency", "4")
    spec = importlib.util.spec_from_file_location("celery_app", HERE / "celery_app.py")
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    sys.modules["celery_app"] = found
    try:
        spec.loader.exec_module(found)
        found.app.conf.update(broker_url=broker.url, result_backend=folder.as_uri())
        wait_until(lambda: found.app.control.ping(timeout=1, limit=1), "the worker does not answer")
        yield found
    finally:
        found.app.pool.force_close_all()
        found.app.close()
        del sys.modules["celery_app"]


def test_a_task_returns_its_result(tasks: Any) -> None:
    results = [tasks.add.delay(each, 1) for each in range(20)]
    assert [each.get(timeout=SOON_S) for each in results] == list(range(1, 21))


def test_the_broker_holds_a_task_until_its_countdown_is_over(tasks: Any, broker: Broker) -> None:
    result = tasks.add.apply_async((1, 2), countdown=3600)

    def is_in_the_queue() -> bool:
        return any(result.id == each.keys for each in broker.messages("celery-tests"))

    assert not is_in_the_queue()
    broker.advance(hours=1)
    assert is_in_the_queue()


def test_a_task_runs_after_its_countdown(tasks: Any) -> None:
    begin_s = time.monotonic()
    result = tasks.add.apply_async((1, 2), countdown=1.5)
    assert result.get(timeout=SOON_S) == 3
    assert time.monotonic() - begin_s >= 1.4


def test_a_task_is_retried(tasks: Any) -> None:
    assert tasks.third_time.delay().get(timeout=SOON_S) == 2


def test_a_chord_runs_after_its_group(tasks: Any) -> None:
    chord = celery.chord([tasks.add.s(each, each) for each in range(4)])
    assert chord(tasks.total.s()).get(timeout=SOON_S) == 12


def test_a_worker_answers_to_remote_control(tasks: Any) -> None:
    (answer,) = tasks.app.control.ping(timeout=SOON_S, limit=1)
    assert list(answer.values()) == [{"ok": "pong"}]


def test_a_task_of_a_killed_worker_comes_to_another(
    tasks: Any, broker: Broker, start_worker: Callable[..., Worker], tmp_path: Path
) -> None:
    path = tmp_path / "task"
    result = tasks.first_hangs.apply_async(queue="celery-killed")
    worker = start_worker("--pool", "solo", "--queues", "celery-killed", **{FILE: str(path)})
    wait_until(path.exists, "the worker got no task")
    worker.kill()
    worker.wait()
    tasks.app.control.add_consumer("celery-killed", reply=True, timeout=SOON_S, limit=1)
    broker.advance(seconds=61)
    assert result.get(timeout=SOON_S) == "done"
