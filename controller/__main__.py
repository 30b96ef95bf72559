"""`python -m trocket.controller`, the same as `trocket controller`: RocketMQ's mqcontroller.

Java counterpart: controller/ControllerStartup.java.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING

from ..auth.dangerous import CONTROLLER
from ..auth.server_program import run_server
from ..common import process
from ..common.command_line import parse
from ..common.outputs import run_guarded
from ..disk.errors import StoreError
from .command_line import PROGRAM
from .config import ControllerConfig, read_controller_config
from .state_store import StateError

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    import trio

    from ..remoting.tls_settings import Tls


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a controller until SIGTERM or SIGINT; return the exit status.

    Args:
      arguments: without the program's name; None: the process's own.
    """
    return run(parse(PROGRAM, arguments))


def run(options: Namespace) -> int:
    """Run a controller with the parsed flags of `PROGRAM`; return the exit status."""
    return run_server(
        options,
        PROGRAM,
        CONTROLLER,
        lambda entries, path: read_controller_config(entries, ControllerConfig(), path=path),
        _run,
        expected=(StoreError, StateError),
    )


async def _run(config: ControllerConfig, tls: Tls, stop: trio.CancelScope) -> None:
    import trio

    from ..common.clock import SystemClock
    from ..disk.os_disk import OsDisk
    from .server import ControllerServer

    controller = ControllerServer(config, clock=SystemClock(), disk=OsDisk(), tls=tls)
    with stop:
        async with trio.open_nursery() as nursery:
            await nursery.start(controller.run)
            process.settle()
            # RocketMQ's own words: scripts wait for them.
            process.say(
                "The Controller boot success. serializeType=JSON, "
                f"address {', '.join(controller.listen_addresses)}"
            )


if __name__ == "__main__":
    sys.exit(run_guarded(main, partial(process.print_error, PROGRAM.name)))
