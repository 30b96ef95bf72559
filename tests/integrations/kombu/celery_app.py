"""The Celery application of the tests; also run by a worker process.

celery -A celery_app worker      with ROCKETMQ_URL, TROCKET_RESULTS_FOLDER and, for one of the
                                 tasks, TROCKET_TASKS_FILE in the environment
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import celery

from trocket.integrations.kombu import register

register()
app = celery.Celery("celery_app", broker=os.environ.get("ROCKETMQ_URL"))
app.conf.update(
    result_backend=Path(os.environ.get("TROCKET_RESULTS_FOLDER", "/")).as_uri(),
    broker_transport_options={"wait_time_seconds": 0.2},
    worker_prefetch_multiplier=1,
    task_default_queue="celery-tests",
)

task: Callable[..., Callable[..., Any]] = app.task


@task
def add(one: int, other: int) -> int:
    return one + other


@task
def total(numbers: list[int]) -> int:
    return sum(numbers)


@task(bind=True)
def third_time(self: Any) -> int:
    if self.request.retries < 2:
        raise self.retry(countdown=1.1)
    return int(self.request.retries)


@task(bind=True, acks_late=True)
def first_hangs(self: Any) -> str:
    """Hangs when it is delivered for the first time."""
    if not self.request.delivery_info["redelivered"]:
        Path(os.environ["TROCKET_TASKS_FILE"]).write_text("hangs", encoding="utf-8")
        threading.Event().wait()
    return "done"
