"""`python -m trocket.filtersrv`, the same as `trocket filtersrv`: RocketMQ's mqfiltersrv.

A broker starts it with `--config-from-stdin`: it reads its configuration from the pipe, never from
the command line. When the broker ends, the pipe is closed and the filter server ends too.

Java counterpart: filtersrv/FiltersrvStartup.java of 4.2.0.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING

from ..auth.dangerous import FILTER_SERVER
from ..auth.open_ports import open_warnings
from ..common import process
from ..common.command_line import parse
from ..common.config import ConfigError, Problems
from ..common.outputs import run_guarded
from ..remoting.tls_files import read_tls_config
from .command_line import PROGRAM
from .config import FiltersrvConfig, read_filtersrv_config

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping, Sequence

    import trio

    from ..common.config import Entry
    from ..remoting.tls_settings import Tls
    from .filters import Filter


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a filter server until SIGTERM or SIGINT.

    Args:
      arguments: command-line arguments without the program's name; None: those of the process.

    Returns: the exit status.
    """
    return run(parse(PROGRAM, arguments))


def run(options: Namespace) -> int:
    """Run a filter server with the parsed flags of `PROGRAM`; return the exit status."""
    from ..common.machine import local_address
    from ..remoting.tls_settings import new_tls

    try:
        entries, path = process.given_entries(options)
        problems = Problems(entries, path)
        with problems.collected():
            config, warnings = read_filtersrv_config(entries, path=path)
            if not config.filter_server_ip:
                config.filter_server_ip = local_address()
        with problems.collected():
            configured = _configured(entries)
        with problems.collected():
            tls_config, tls_warnings = read_tls_config(entries, path=path)
            tls = new_tls(tls_config)
        problems.raise_all()
    except ConfigError as error:
        return process.refuse(PROGRAM.name, error, is_check=options.print_all)
    warnings += [*open_warnings(FILTER_SERVER, config), *tls_warnings]
    if options.print_all:
        process.print_warnings(PROGRAM.name, warnings)
        process.print_configuration([config, tls_config])
        return process.EXIT_OK
    process.log_to_stderr(options.log_level, options.log_format, warnings)
    return _serve(config, configured, tls, options)


def _configured(entries: Sequence[Entry]) -> Mapping[str, Filter]:
    """The filters that the operator configured, whatever else is wrong in the file."""
    from .filters import installed_functions, read_filter_classes

    path = {entry.key: entry.value.strip() for entry in entries}.get("filterClassesFile")
    if not path:
        return {}
    return read_filter_classes(process.read_text(path), installed_functions(), path=path)


def _serve(
    config: FiltersrvConfig, configured: Mapping[str, Filter], tls: Tls, options: Namespace
) -> int:
    from .controller import FiltersrvController, UnknownToBrokerError

    async def run(stop: trio.CancelScope) -> None:
        import trio

        controller = FiltersrvController(config, configured, tls=tls)
        with stop:
            async with trio.open_nursery() as nursery:
                await nursery.start(controller.run)
                process.settle()
                # The text of RocketMQ's mqfiltersrv.
                process.say(f"The Filter Server boot success, {controller.address}")
                if options.from_stdin:
                    nursery.start_soon(process.stop_at_end_of_stdin, stop)

    return process.serve(
        run,
        program=PROGRAM.name,
        expected=(UnknownToBrokerError,),
        with_parent=options.exit_with_parent,
    )


if __name__ == "__main__":
    sys.exit(run_guarded(main, partial(process.print_error, PROGRAM.name)))
