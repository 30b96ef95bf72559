"""`python -m trocket.namesrv`, the same as `trocket namesrv`: RocketMQ's mqnamesrv.

Java counterpart: namesrv/NamesrvStartup.java.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING

from ..auth.dangerous import NAME_SERVER
from ..auth.open_ports import open_warnings
from ..common import process
from ..common.command_line import parse
from ..common.config import ConfigError, Problems
from ..common.log_levels import apply_levels, parse_levels
from ..common.outputs import run_guarded
from ..disk.errors import StoreError
from ..remoting.tls_files import check_metrics_entries, read_tls_config
from .command_line import PROGRAM
from .config import NamesrvConfig, read_namesrv_config

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    import trio

    from ..remoting.tls_settings import Tls


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a name server until SIGTERM or SIGINT; return the exit status.

    Args:
      arguments: without the program's name; None: the process's own.
    """
    return run(parse(PROGRAM, arguments))


def run(options: Namespace) -> int:
    """Run a name server with the parsed flags of `PROGRAM`; return the exit status."""
    from ..remoting.tls_settings import new_tls

    try:
        entries = process.read_entries(options.config_file)
        path = options.config_file or ""
        problems = Problems(entries, path)
        with problems.collected():
            config, warnings = read_namesrv_config(entries, NamesrvConfig(), path=path)
        with problems.collected():
            tls_config, tls_warnings = read_tls_config(entries, path=path)
            tls = new_tls(tls_config)
        with problems.collected():
            check_metrics_entries(entries)
        problems.raise_all()
    except ConfigError as error:
        return process.refuse(PROGRAM.name, error, is_check=options.print_all)
    warnings += [*open_warnings(NAME_SERVER, config), *tls_warnings]
    if options.print_all:
        process.print_warnings(PROGRAM.name, warnings)
        process.print_configuration([config, tls_config])
        return process.EXIT_OK
    process.log_to_stderr(options.log_level, options.log_format, warnings)
    apply_levels(config.log_level, parse_levels(config.log_levels))
    return process.serve(
        lambda stop: _run(config, tls, stop),
        program=PROGRAM.name,
        expected=(StoreError,),
        with_parent=options.exit_with_parent,
    )


async def _run(config: NamesrvConfig, tls: Tls, stop: trio.CancelScope) -> None:
    import trio

    from ..common.clock import SystemClock
    from ..disk.os_disk import OsDisk
    from .controller import NamesrvController

    controller = NamesrvController(config, clock=SystemClock(), disk=OsDisk(), tls=tls)
    with stop:
        async with trio.open_nursery() as nursery:
            await nursery.start(controller.run)
            process.settle()
            # RocketMQ's own words: scripts and test containers wait for them.
            process.say(
                "The Name Server boot success. serializeType=JSON, "
                f"address {', '.join(controller.listen_addresses)}"
            )


if __name__ == "__main__":
    sys.exit(run_guarded(main, partial(process.print_error, PROGRAM.name)))
