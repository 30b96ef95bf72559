"""The program of a server without messages: reads its file, prints or checks it, and serves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from ..common import process
from ..common.config import ConfigError, Problems
from ..common.log_levels import apply_levels, parse_levels
from ..remoting.tls_files import check_metrics_entries, read_tls_config
from .open_ports import open_warnings

if TYPE_CHECKING:
    from argparse import Namespace

    import trio

    from ..common.command_line import Program
    from ..common.config import Entry
    from ..remoting.tls_settings import Tls
    from .dangerous import Danger
    from .server_config import Config


def run_server(
    options: Namespace,
    program: Program,
    danger: Danger,
    read: Callable[[list[Entry], str], tuple[Config, list[str]]],
    serve: Callable[[Config, Tls, trio.CancelScope], Awaitable[None]],
    *,
    expected: tuple[type[Exception], ...],
) -> int:
    """Run a server with the parsed flags of its program; return the exit status.

    Args:
      danger: what other machines may not ask it for, for the warning of an open server.
      read: the configuration of a file's entries and path, and its warnings.
      serve: runs the server until the scope is cancelled.
      expected: errors of `serve` that are an operator's to mend: they end in one line.
    """
    from ..remoting.tls_settings import new_tls

    try:
        entries = process.read_entries(options.config_file)
        path = options.config_file or ""
        problems = Problems(entries, path)
        with problems.collected():
            config, warnings = read(entries, path)
        with problems.collected():
            tls_config, tls_warnings = read_tls_config(entries, path=path)
            tls = new_tls(tls_config)
        with problems.collected():
            check_metrics_entries(entries)
        problems.raise_all()
    except ConfigError as error:
        return process.refuse(program.name, error, is_check=options.print_all)
    warnings += [*open_warnings(danger, config), *tls_warnings]
    if options.print_all:
        process.print_warnings(program.name, warnings)
        process.print_configuration([config, tls_config])
        return process.EXIT_OK
    process.log_to_stderr(options.log_level, options.log_format, warnings)
    apply_levels(config.log_level, parse_levels(config.log_levels))
    return process.serve(
        lambda stop: serve(config, tls, stop),
        program=program.name,
        expected=expected,
        with_parent=options.exit_with_parent,
    )
