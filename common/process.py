"""Common parts of the server processes: files, log, signals, exit status.

A shell without protocol logic. trio is imported only to run a server, so that `--help` and `-p` do
not wait for it.

Java counterpart: srvutil/ServerUtil with the main methods of BrokerStartup and NamesrvStartup.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import logging
import os
import resource
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import parent
from .allocator import fix_thresholds
from .config import (
    TEXT_SIZE_MAX,
    ConfigError,
    Entry,
    decode,
    key_of,
    parse_properties,
    to_properties,
)
from .log_lines import LimitedHandler, TextFormatter
from .outputs import leaves

if TYPE_CHECKING:
    import trio

EXIT_OK = 0
EXIT_FAILED = 1
"""The process could not start, or failed."""
EXIT_USAGE = 2
"""Flags or configuration are wrong; argparse's exit status."""
EXIT_INTERRUPTED = 130
"""Ctrl-C before there was anything to stop."""

Report = Callable[[str, str], None]
"""Prints an error of a program, whose name is first, in one line."""

STDIN = "standard input"
"""In errors, instead of a file's path."""
END_OF_CONFIG = b"\n\n"
"""The end of the keys on standard input."""

OPEN_FILES_WANTED = 65_536
"""A connection needs one, the store's files up to 900: the usual limit of 1,024 leaves no room for
clients. Apache's scripts set 655,350."""

_imported_s = time.monotonic()

logger = logging.getLogger("trocket")


def read_entries(path: str | None) -> list[Entry]:
    """The entries of a configuration file; none without a file.

    Raises: ConfigError: it cannot be read, is too large, or is no properties file.
    """
    return [] if path is None else parse_properties(read_text(path), path=path)


def given_entries(options: argparse.Namespace) -> tuple[list[Entry], str]:
    """The entries of the file, or of standard input, that flags name; and its name for messages.

    Args:
      options: of `command_line.APACHE_FLAGS` with `CONFIG_FROM_STDIN`.
    Raises: ConfigError: see `read_entries`; or standard input ended, or is too long, before an
      empty line.
    """
    if options.from_stdin:
        return _entries_of_stdin(), STDIN
    return read_entries(options.config_file), options.config_file or ""


def _entries_of_stdin() -> list[Entry]:
    lines = b""
    while not lines.endswith(END_OF_CONFIG):
        line = sys.stdin.buffer.readline(TEXT_SIZE_MAX)
        lines += line
        if not line or len(lines) > TEXT_SIZE_MAX:
            raise ConfigError("ended without an empty line", path=STDIN)
    return parse_properties(decode(lines), path=STDIN)


async def stop_at_end_of_stdin(stop: trio.CancelScope) -> None:
    """Cancel `stop` when standard input ends, because the parent process has ended."""
    import trio

    stdin = trio.lowlevel.FdStream(0)
    while await stdin.receive_some(4096):
        pass
    stop.cancel()


def read_text(path: str) -> str:
    """The text of a configuration file.

    Raises: ConfigError: it cannot be read, or is too large.
    """
    try:
        with Path(path).open("rb") as file:
            content = file.read(TEXT_SIZE_MAX + 1)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(f"cannot be read: {why}", path=path) from error
    return decode(content)


def print_configuration(configs: Iterable[Any], only: frozenset[str] | None = None) -> None:
    """Print `key=value` lines that a configuration file could hold; `only`: these keys.

    A secret value is left out: a comment stands for it.
    """
    for config in configs:
        secret = {
            key_of(field)
            for field in dataclasses.fields(config)
            if "secret" in field.metadata and getattr(config, field.name)
        }
        for key, value in to_properties(config):
            if only is None or key in only:
                print(f"# {key} is set, and secret" if key in secret else f"{key}={value}")


def log_to_stderr(level: str, form: str, warnings: Iterable[str]) -> None:
    """Log on standard error, beginning with the warnings of the configuration.

    Args:
      form: of `command_line.LOG_FORMATS`; text has one line per record, and tracebacks have more.
        Of an event that repeats, `log_lines` leaves lines out.
    """
    # Neither is shown, and both cost a lookup for every record.
    logging.logThreads = False
    logging.logMultiprocessing = False
    handler = LimitedHandler(sys.stderr)
    if form == "json":
        from .log_lines import JsonFormatter

        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(TextFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler])
    for warning in warnings:
        logger.warning(warning)


def raise_open_files_limit() -> None:
    """Raise the limit of open files and connections to `OPEN_FILES_WANTED`, or the hard limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES_WANTED if hard == resource.RLIM_INFINITY else min(OPEN_FILES_WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError) as error:  # macOS reports infinity and accepts less
            logger.info(
                "the limit of open files stays %(limit)d: %(error)s",
                {"limit": soft, "error": error},
            )


def settle() -> None:
    """Enable the garbage collector after the start, without the start's objects.

    `serve` disables it during the start, which creates many objects and no garbage.
    """
    gc.freeze()
    gc.enable()


def say(text: str) -> None:
    """Print to standard output and flush: the parent process may read from a pipe."""
    print(text, flush=True)


def seconds_since_start() -> float:
    """Seconds since this process was started (Linux), or since this module was imported.

    Linux counts in hundredths from the exec, so the interpreter's own start is part of it.
    """
    try:
        fields = Path("/proc/self/stat").read_text(encoding="ascii", errors="replace")
        ticks = int(fields.rpartition(")")[2].split()[19])
        return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError, IndexError, ValueError):
        return time.monotonic() - _imported_s


def serve(
    main: Callable[[trio.CancelScope], Awaitable[None]],
    *,
    program: str,
    expected: tuple[type[BaseException], ...] = (),
    with_parent: bool = False,
    report: Report | None = None,
) -> int:
    """Run `main` until SIGTERM or SIGINT; returns the exit status.

    Args:
      main: gets a scope that a signal cancels: code inside it is stopped first, the rest when
        `main` decides.
      program: the prefix of error lines.
      expected: errors that are printed as one line on standard error, besides OSError and
        ConfigError. Any other is a bug and prints its traceback.
      with_parent: stop also when the process that started this one has ended.
      report: prints an error line of `expected`; None: `print_error`.
    """
    gc.disable()  # until `settle`
    raise_open_files_limit()
    fix_thresholds()
    import trio

    from .collector import Collector

    async def watched() -> None:
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            stop = trio.CancelScope()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_cancel_on_signal, signals, stop)
                nursery.start_soon(Collector().run)
                if with_parent:
                    nursery.start_soon(_cancel_with_parent, stop)
                await main(stop)
                nursery.cancel_scope.cancel()
            with trio.move_on_after(0.001):  # a second Ctrl-C while stopping changes nothing
                async for _ in signals:
                    pass

    try:
        trio.run(watched)
    except BaseException as error:
        failures = list(leaves(error))
        if all(isinstance(leaf, KeyboardInterrupt) for leaf in failures):
            return EXIT_INTERRUPTED
        if not all(isinstance(leaf, (OSError, ConfigError, *expected)) for leaf in failures):
            raise
        for line in dict.fromkeys(_line(leaf) for leaf in failures):
            (report or print_error)(program, line)
        return EXIT_FAILED
    finally:
        gc.enable()
    return EXIT_OK


def refuse(
    program: str, error: ConfigError, *, is_check: bool = False, report: Report | None = None
) -> int:
    """Print a configuration's errors, and its warnings before them; returns the exit status.

    Args:
      is_check: the configuration was to be shown, not used.
      report: prints an error line; None: `print_error`.
    """
    print_warnings(program, error.warnings)
    for line in str(error).split("\n"):
        (report or print_error)(program, line)
    return EXIT_FAILED if is_check else EXIT_USAGE


def print_error(program: str, line: str) -> None:
    print(f"{program}: {line}", file=sys.stderr, flush=True)


def print_warnings(program: str, warnings: Iterable[str]) -> None:
    """Print the warnings of a configuration that a start would log."""
    for text in warnings:
        print(f"{program}: warning: {text}", file=sys.stderr, flush=True)


async def _cancel_on_signal(signals: Any, stop: trio.CancelScope) -> None:
    async for number in signals:
        logger.info("%(signal)s: stopping", {"signal": signal.Signals(number).name})
        stop.cancel()


async def _cancel_with_parent(stop: trio.CancelScope) -> None:
    await parent.wait_for_its_end()
    logger.info("the process that started this one has ended: stopping")
    stop.cancel()


def _line(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror}"
    return str(error) or type(error).__name__
