"""Plays scenarios of messaging features, all at the same time, as users of the Python client.

Arguments: the API (asyncio, trio or blocking), the name server's HOST:PORT or a URL, the prefix of
topics and groups, and the scenarios' names. Prints for each {"scenario": NAME, "facts":
{...}}, or "error" with an error text, and finally the line "end", as the programs of the
official clients do; interop/scenarios/ has the expected facts.

A name with colons, NAME:SEND:CONSUME, runs through a fault of the broker:
{"at": POINT, "scenario": NAME} reports its progress, and a line NAME POINT resumes it.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback

import anyio
import anyio.from_thread

from . import accounts, ask, group, grpc, later, pop, pull, push, send, transaction
from .door import ASYNC_DOORS, open_door
from .points import Points
from .stage import Play, Stage
from .through import Through

TIMEOUT_S = 110
THROUGH_TIMEOUT_S = 600

ALL: dict[str, Play] = {
    **send.ALL,
    **push.ALL,
    **group.ALL,
    **pull.ALL,
    **pop.ALL,
    **later.ALL,
    **transaction.ALL,
    **ask.ALL,
    **accounts.ALL,
    **grpc.ALL,
}


def say(line: str) -> None:
    print(line, flush=True)


async def play(argument: str, stage: Stage, points: Points) -> None:
    name, *how = argument.split(":")
    outcome: dict[str, object] = {"scenario": name, "facts": stage.facts}
    try:
        with anyio.fail_after(THROUGH_TIMEOUT_S if how else TIMEOUT_S):
            async with stage:
                if how:
                    await Through(stage, points, name, *how).play()
                else:
                    await ALL[name](stage)
    except Exception as error:  # noqa: BLE001 - reported as the scenario's error
        outcome["error"] = "".join(traceback.format_exception(error))
    say(json.dumps(outcome))


async def main(door_name: str, namesrv: str, prefix: str, arguments: list[str]) -> None:
    async with (
        anyio.from_thread.BlockingPortal() as portal,
        open_door(door_name, portal) as door,
        door.producer(namesrv, group="scenarios", timeout_s=10.0) as producer,
        anyio.create_task_group() as tasks,
    ):
        points = Points(portal)
        points.start()
        for argument in arguments:
            stage = Stage(door, namesrv, prefix + argument.partition(":")[0], producer)
            tasks.start_soon(play, argument, stage, points)
    say("end")


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    door, namesrv, prefix, *arguments = sys.argv[1:]
    backend = door if door in ASYNC_DOORS else "asyncio"
    anyio.run(main, door, namesrv, prefix, arguments, backend=backend)
