"""`python -m trocket.filtersrv`, the same as `trocket filtersrv`: RocketMQ's mqfiltersrv.

A broker starts it with `--config-from-stdin` alone: the keys come through the pipe, never by a
command line, and when the pipe ends, because the broker has ended, so does the filter server.

Java counterpart: filtersrv/FiltersrvStartup.java of 4.2.0.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ..remoting import process
from ..remoting.config import TEXT_SIZE_MAX, ConfigError, Entry, decode, parse_properties
from .config import FiltersrvConfig, read_filtersrv_config

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import trio

    from .filters import Filter

PROGRAM = "trocket filtersrv"
END_OF_CONFIG = b"\n\n"
"""Behind the keys on standard input."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a filter server until SIGTERM or SIGINT; the exit status.

    Args:
      arguments: without the program's name; None: the process's own.
    """
    parser = process.apache_flags(PROGRAM, "Run a filter server beside a RocketMQ broker.")
    parser.add_argument(
        "--config-from-stdin",
        dest="from_stdin",
        action="store_true",
        help="read the keys from standard input, up to an empty line, and end when it ends",
    )
    options = parser.parse_args(arguments)
    path = "standard input" if options.from_stdin else options.config_file or ""
    try:
        entries = _entries_of_stdin() if options.from_stdin else process.read_entries(path or None)
        config, warnings = read_filtersrv_config(entries, path=path)
        if options.print_all:
            process.print_configuration([config])
            return process.EXIT_OK
        configured = _configured(config)
    except ConfigError as error:
        return process.refuse(PROGRAM, error)
    process.log_to_stderr(options.log_level, warnings)
    return _serve(config, configured, from_stdin=options.from_stdin)


def _entries_of_stdin() -> list[Entry]:
    """Raises: ConfigError: standard input ended, or holds too much, before an empty line."""
    lines = b""
    while not lines.endswith(END_OF_CONFIG):
        line = sys.stdin.buffer.readline(TEXT_SIZE_MAX)
        lines += line
        if not line or len(lines) > TEXT_SIZE_MAX:
            raise ConfigError("ended without an empty line", path="standard input")
    return parse_properties(decode(lines), path="standard input")


def _configured(config: FiltersrvConfig) -> Mapping[str, Filter]:
    """The operator's own filters, and an address for consumers."""
    from ..broker.machine import local_address
    from .filters import installed_functions, read_filter_classes

    if not config.filter_server_ip:
        config.filter_server_ip = local_address()
    path = config.filter_classes_file
    if not path:
        return {}
    return read_filter_classes(process.read_text(path), installed_functions(), path=path)


def _serve(config: FiltersrvConfig, configured: Mapping[str, Filter], *, from_stdin: bool) -> int:
    from .controller import FiltersrvController, UnknownToBrokerError

    async def run(stop: trio.CancelScope) -> None:
        import trio

        controller = FiltersrvController(config, configured)
        with stop:
            async with trio.open_nursery() as nursery:
                await nursery.start(controller.run)
                process.settle()
                # RocketMQ's own words.
                process.say(f"The Filter Server boot success, {controller.address}")
                if from_stdin:
                    nursery.start_soon(_stop_at_end_of_stdin, stop)

    return process.serve(run, program=PROGRAM, expected=(UnknownToBrokerError,))


async def _stop_at_end_of_stdin(stop: trio.CancelScope) -> None:
    import trio

    stdin = trio.lowlevel.FdStream(0)
    while await stdin.receive_some(4096):
        pass
    stop.cancel()


if __name__ == "__main__":
    sys.exit(main())
