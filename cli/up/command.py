"""`trocket up`: name server and broker in one process, ready for the official clients.

`up.py` runs both; with `--masters`, `--slaves` or `--brokers` each broker runs in a separate
process: `cluster.py`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ...common import process
from ...common.config import ConfigError
from ...common.terminal import red
from ...disk.errors import StoreError
from ..console_extra import NOT_INSTALLED, is_installed
from ..error_lines import errors_as_json, say_error
from . import exposure as up_exposure
from . import test_clock
from .config import Configured, read_cluster, read_one
from .errors import ConsoleError
from .flags import PROGRAM
from .plan import Shape, shape_of
from .up import SelfCheckError, Up

if TYPE_CHECKING:
    import trio

    from .console import ConsoleChild


def run(options: argparse.Namespace) -> int:
    """Run both with the parsed flags of `PROGRAM` until SIGTERM or SIGINT; return the status."""
    errors_as_json.set(options.json)
    with test_clock.folder_of(options):
        return _run(options)


def _run(options: argparse.Namespace) -> int:
    try:
        shape = shape_of(
            options.masters,
            options.slaves,
            options.brokers,
            is_sync=options.is_sync,
            is_failover=options.is_failover,
        )
        configured = read_cluster(options, shape) if shape is not None else read_one(options)
    except up_exposure.ExposedError as error:
        if options.json:
            _report(PROGRAM.name, str(error))
        else:
            print(red(f"{PROGRAM.name}: {error}", sys.stderr), file=sys.stderr, flush=True)
        return process.EXIT_FAILED if options.print_all else process.EXIT_USAGE
    except ConfigError as error:
        return process.refuse(PROGRAM.name, error, is_check=options.print_all, report=_report)
    if options.print_all:
        _print(configured)
        return process.EXIT_OK
    if options.console and not is_installed():
        _report(PROGRAM.name, NOT_INSTALLED)
        return process.EXIT_FAILED
    process.log_to_stderr(options.log_level, options.log_format, configured.warnings)
    if shape is not None:
        return _serve_cluster(options, configured, shape)
    up = new_up(options, configured)
    return process.serve(
        up.run,
        program=PROGRAM.name,
        expected=(StoreError, SelfCheckError, ConsoleError),
        with_parent=options.exit_with_parent,
        report=_report,
    )


def new_up(options: argparse.Namespace, configured: Configured) -> Up:
    """The servers of one process, from their flags and configurations."""
    control = None
    if options.test_clock:
        from .control import Control

        folders = test_clock.folders(Path(options.home), configured.store)
        control = Control(options.control_port or 0, () if options.memory else folders)
    is_saved = options.config_file and not options.memory
    return Up(
        configured.namesrv, configured.broker, configured.store, configured.tls,
        as_json=options.json, home=options.home, in_memory=options.memory,
        config_path=str(Path(options.config_file).absolute()) if is_saved else "",
        console=_console(options, configured), control=control, ready_file=options.ready_file,
    )  # fmt: skip


def _console(options: argparse.Namespace, configured: Configured) -> ConsoleChild | None:
    if not options.console:
        return None
    from .console import ConsoleChild

    is_tls = configured.tls.check is not None
    return ConsoleChild(options.console_port, configured.broker_tls if is_tls else None)


def _report(program: str, line: str) -> None:
    say_error(line, program=program)


def _print(configured: Configured) -> None:
    """Print the configurations as `-p` of each server does, below a heading, and the warnings."""
    process.print_warnings(PROGRAM.name, configured.warnings)
    for name, configs in configured.sections():
        process.say(f"# the configuration of {name}")
        process.print_configuration(configs)


def _serve_cluster(options: argparse.Namespace, configured: Configured, shape: Shape) -> int:
    from .cluster import ClusterError, UpCluster

    namesrv, broker = configured.namesrv, configured.broker

    async def run(stop: trio.CancelScope) -> None:
        cluster = UpCluster(
            namesrv,
            configured.members,
            shape,
            cluster=broker.broker_cluster_name,
            further_namesrv=broker.namesrv_addresses,
            log_level=options.log_level,
            log_format=options.log_format,
            as_json=options.json,
            home=configured.store.store_path_root_dir,
            tls=configured.tls.namesrv,
            check_tls=configured.tls.check,
            console=_console(options, configured),
            ready_file=options.ready_file,
        )
        await cluster.run(stop)

    return process.serve(
        run,
        program=PROGRAM.name,
        expected=(StoreError, ClusterError, ConsoleError),
        with_parent=options.exit_with_parent,
        report=_report,
    )
