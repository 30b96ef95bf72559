"""`python -m trocket.broker`, the same as `trocket broker`: RocketMQ's mqbroker.

`trocket up` with several brokers starts each with `--config-from-stdin`: the keys come through a
pipe, never on a command line. When the pipe ends, because `up` has ended, the broker stops.

Java counterpart: broker/BrokerStartup.java.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..auth.dangerous import BROKER
from ..auth.open_ports import open_warnings
from ..common import process
from ..common.command_line import parse
from ..common.config import ConfigError, Problems
from ..common.log_levels import apply_levels, parse_levels
from ..common.outputs import run_guarded
from ..disk.errors import StoreError
from ..remoting.tls_files import check_metrics_entries, read_tls_config
from ..store.config import MessageStoreConfig
from .settings.command_line import PROGRAM
from .settings.config import BrokerConfig, from_environment, known_keys, with_machine
from .settings.config_checks import read_broker_config

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    import trio

    from ..common.config import Entry
    from ..remoting.tls_config import TlsConfig
    from ..remoting.tls_settings import Tls
    from .controller import BrokerController
    from .failover.set_broker import SetBroker


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a broker until SIGTERM or SIGINT; return the exit status.

    Args:
      arguments: without the program's name; None: the process's own.
    """
    return run(parse(PROGRAM, arguments))


def run(options: Namespace) -> int:
    """Run a broker with the parsed flags of `PROGRAM`; return the exit status."""
    is_check = options.print_all or options.print_important
    try:
        entries, path = process.given_entries(options)
        broker, store, tls_config, tls, warnings = _read(entries, path, options.namesrv_addr)
    except ConfigError as error:
        return process.refuse(PROGRAM.name, error, is_check=is_check)
    if is_check:
        process.print_warnings(PROGRAM.name, warnings)
        important = frozenset(key for key, fact in known_keys().items() if fact.important)
        process.print_configuration(
            [broker, store, tls_config], None if options.print_all else important
        )
        return process.EXIT_OK
    # Absolute, so that it does not depend on the working directory.
    path = "" if options.from_stdin or not path else str(Path(path).absolute())
    process.log_to_stderr(options.log_level, options.log_format, warnings)
    apply_levels(broker.log_level, parse_levels(broker.log_levels))
    return process.serve(
        lambda stop: _run(broker, store, tls, stop, options, path),
        program=PROGRAM.name,
        expected=(StoreError,),
        with_parent=options.exit_with_parent,
    )


def _read(
    entries: list[Entry], path: str, namesrv_addr: str | None
) -> tuple[BrokerConfig, MessageStoreConfig, TlsConfig, Tls, list[str]]:
    """All that the file says, for a start and for the flags that show it.

    Returns: the configurations, TLS as it is used, and a line for each warning.
    Raises: ConfigError, ConfigErrors: all that keeps the broker from starting.
    """
    from ..remoting.tls_settings import new_tls

    problems = Problems(entries, path)
    with problems.collected():
        broker, store, warnings = _configured(entries, path, namesrv_addr)
    with problems.collected():
        tls_config, tls_warnings = read_tls_config(entries, path=path)
        tls = new_tls(tls_config)
    with problems.collected():
        check_metrics_entries(entries)
    problems.raise_all()
    warnings += open_warnings(BROKER, broker)
    return broker, store, tls_config, tls, [*warnings, *tls_warnings]


def _configured(
    entries: list[Entry], path: str, namesrv_addr: str | None
) -> tuple[BrokerConfig, MessageStoreConfig, list[str]]:
    """Merge the configuration's sources, from low to high: defaults, environment, file, flags."""
    from ..common.machine import host_name, local_address

    broker, store, warnings = read_broker_config(
        entries,
        BrokerConfig(**from_environment(os.environ)),
        MessageStoreConfig(),
        path=path,
        namesrv_addr=namesrv_addr,
    )
    if not broker.namesrv_addr:
        warnings.append(
            "no name server is configured, so clients cannot find this broker: "
            "set namesrvAddr, -n or NAMESRV_ADDR"
        )
    with_machine(broker, host_name=host_name(), local_address=local_address)
    return broker, store, warnings


async def _run(
    broker: BrokerConfig,
    store: MessageStoreConfig,
    tls: Tls,
    stop: trio.CancelScope,
    options: Namespace,
    path: str,
) -> None:
    import trio

    from ..common.clock import SystemClock
    from ..disk.os_disk import OsDisk

    seams: dict[str, Any] = {"clock": SystemClock(), "disk": OsDisk()}
    controller: BrokerController | SetBroker
    if broker.enable_controller_mode:
        from .failover.set_broker import SetBroker

        controller = SetBroker(broker, store, config_path=path, tls=tls, **seams)
    else:
        from .controller import BrokerController

        controller = BrokerController(broker, store, config_path=path, tls=tls, **seams)
    with stop:
        async with trio.open_nursery() as nursery:
            if options.from_stdin:
                nursery.start_soon(process.stop_at_end_of_stdin, stop)
            await nursery.start(controller.run)
            process.settle()
            found_by = f" and name server is {broker.namesrv_addr}" if broker.namesrv_addr else ""
            # RocketMQ's own words: scripts and test containers wait for them.
            process.say(
                f"The broker[{broker.broker_name}, {controller.broker_addr}] boot success. "
                f"serializeType=JSON{found_by}"
            )


if __name__ == "__main__":
    sys.exit(run_guarded(main, partial(process.print_error, PROGRAM.name)))
