"""`python -m trocket.proxy`, the same as `trocket proxy`: RocketMQ's mqproxy in cluster mode.

Java counterpart: proxy/ProxyStartup.java.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING

from ..common import process
from ..common.command_line import parse
from ..common.config import ConfigError, Problems
from ..common.outputs import run_guarded
from ..remoting.opener import split_address
from ..remoting.tls_files import read_tls_config
from .command_line import PROGRAM
from .config import ProxyConfig, parse_json, read_proxy_config

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    import trio

    from ..common.config import Entry
    from ..remoting.tls_settings import Tls

NO_GRPC = "a proxy needs protobuf and ngh2, which are not installed: pip install 'trocket[grpc]'"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a proxy until SIGTERM or SIGINT; return the exit status.

    Args:
      arguments: without the program's name; None: the process's own.
    """
    return run(parse(PROGRAM, arguments))


def run(options: Namespace) -> int:
    """Run a proxy with the parsed flags of `PROGRAM`; return the exit status."""
    from ..remoting.tls_settings import new_tls

    try:
        path = options.config_file or ""
        entries = parse_json(process.read_text(path), path=path) if path else []
        problems = Problems(entries, path)
        config = ProxyConfig()
        with problems.collected():
            config, warnings = read_proxy_config(*_with_flags(entries, options), path=path)
        with problems.collected():
            tls_config, tls_warnings = read_tls_config(entries, path=path)
            tls = new_tls(tls_config)
        problems.raise_all()
    except ConfigError as error:
        return process.refuse(PROGRAM.name, error, is_check=options.print_all)
    warnings += tls_warnings
    if options.print_all:
        process.print_warnings(PROGRAM.name, warnings)
        process.print_configuration([config, tls_config])
        return process.EXIT_OK
    process.log_to_stderr(options.log_level, options.log_format, warnings)
    return process.serve(
        lambda stop: _run(config, tls, stop),
        program=PROGRAM.name,
        with_parent=options.exit_with_parent,
    )


def _with_flags(entries: list[Entry], options: Namespace) -> tuple[list[Entry], ProxyConfig]:
    """The entries that no flag overrides, and the flags. Raises: ConfigError: no address."""
    given = ProxyConfig()
    overridden: tuple[str, ...] = ()
    if options.namesrv_addr:
        given.namesrv_addr = options.namesrv_addr
        overridden += ("namesrvAddr",)
    if options.listen:
        try:
            given.bind_address, given.grpc_server_port = split_address(options.listen)
        except ValueError as error:
            raise ConfigError(f"--listen: {error}") from error
        overridden += ("bindAddress", "grpcServerPort")
    return [entry for entry in entries if entry.key not in overridden], given


async def _run(config: ProxyConfig, tls: Tls, stop: trio.CancelScope) -> None:
    import trio

    from ..common.clock import SystemClock

    try:
        from .controller import ProxyController

        controller = ProxyController(config, now_ms=SystemClock().wall_ms, tls=tls)
    except ImportError as error:
        raise ConfigError(NO_GRPC) from error
    with stop:
        async with trio.open_nursery() as nursery:
            await nursery.start(controller.run)
            process.settle()
            # RocketMQ's own words: scripts and test containers wait for them.
            process.say(
                "rocketmq-proxy startup successfully, "
                f"address {', '.join(controller.listen_addresses)}"
            )


if __name__ == "__main__":
    sys.exit(run_guarded(main, partial(process.print_error, PROGRAM.name)))
