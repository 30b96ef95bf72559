"""The report of tasks that keep a broker from closing at a change of its role.

A broker that does not close is no master and no slave. It says where it waits, and ends the process
in the end, which loses nothing that was acknowledged: its supervisor starts it again.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from typing import Final

import trio

logger = logging.getLogger(__name__)

SLOW_S: Final = 10.0
"""A broker closes in some hundredths of a second, and a slow disk takes seconds."""

LIMIT_S: Final = 60.0
"""As long as the brokers of a set wait for a disk elsewhere, at most, before they give up."""

TASKS_SHOWN_MAX: Final = 20

EXIT_STATUS: Final = 1


async def watch_close(nursery: trio.Nursery) -> None:
    """Report what a cancelled nursery waits for, and end the process if it goes on so.

    Cancelled when the nursery has ended.
    """
    await trio.sleep(SLOW_S)
    logger.error(
        "the broker has not closed within %(slow_s)g s for the change of its role; it waits for: "
        "%(tasks)s. Please report this",
        {"slow_s": SLOW_S, "tasks": "; ".join(_waiting(nursery)) or "nothing that is known"},
    )
    await trio.sleep(LIMIT_S - SLOW_S)
    logger.critical(
        "the broker has not closed within %(limit_s)g s for the change of its role: the process "
        "ends, and has to be started again. No confirmed message is lost",
        {"limit_s": LIMIT_S},
    )
    logging.shutdown()
    os._exit(EXIT_STATUS)


def _waiting(nursery: trio.Nursery) -> list[str]:
    """Where the tasks stand that have no children: name, file, line; without trio's own frames."""
    found = []
    for task in _leaves(nursery):
        places = [
            f"{frame.f_code.co_filename.rpartition('/')[2]}:{line} {frame.f_code.co_name}"
            for frame, line in task.iter_await_frames()
            if not str(frame.f_globals.get("__name__")).startswith("trio.")
        ]
        found.append(f"{task.name} ({' > '.join(places[-3:])})")
    return found[:TASKS_SHOWN_MAX]


def _leaves(nursery: trio.Nursery) -> Iterator[trio.lowlevel.Task]:
    for task in nursery.child_tasks:
        children = [each for child in task.child_nurseries for each in _leaves(child)]
        yield from children or [task]
