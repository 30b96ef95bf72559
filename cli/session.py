"""Shared parts of the commands that use a cluster: flags, clients, errors as one line, JSON.

Exit statuses: 0 success, 1 failure, 2 wrong usage, 130 after Ctrl-C.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import sys
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, NoReturn, TypeVar

import typer

from ..common.outputs import OutputError, leaves
from ..common.terminal import EXIT_INTERRUPTED, say
from ..common.texts import one_line
from . import profiles
from .completion import DEFAULT_URL as DEFAULT_URL
from .completion import broker_names, cluster_names, group_names, profile_names, topic_names
from .error_lines import errors_as_json
from .error_lines import say_error as say_error
from .missing import absent, is_about_names, note_group, note_topic, note_url
from .missing import plain as plain_error

if TYPE_CHECKING:
    from ..client import Admin, Client, ClientOptions
    from ..remoting.signature import Credentials


# Clients of the commands that use a cluster.


def new_client(
    url: str,
    timeout_s: float,
    *,
    waits: bool = False,
    account: Credentials | None = None,
    silent_timeout_s: float | None = None,
) -> Client:
    """A client for the flags and the environment, not open yet.

    Environment: ROCKETMQ_ACCESS_KEY, ROCKETMQ_SECRET_KEY, ROCKETMQ_SECURITY_TOKEN; an account in
    the URL takes precedence. For TLS, a flag takes precedence over the URL, and that over the
    variables of `tls_options.VARIABLES`.

    Args:
      waits: calls wait for servers that are not there (yet), as those of a program do: what is
        piped into a command outlives a restart of its broker.
      account: instead of that of the URL and the environment.
      silent_timeout_s: the option; for commands that go on.

    Raises: ConfigurationError: the URL or the environment is not valid.
    """
    from ..client import Client, ConfigurationError
    from ..remoting.cluster_url import parse_url
    from ..remoting.signature import credentials_of
    from ..remoting.tls_options import TlsSettings, settings_of, tls_settings_of
    from .tls_flags import tls_flags

    more: ClientOptions = {"timeout_s": timeout_s, "silent_timeout_s": silent_timeout_s}
    if not waits:  # a command line is for people: what is not there is said at once
        more["wait_for_broker_s"] = 0
    try:
        parsed = parse_url(url)
        credentials = account or parsed.credentials or credentials_of(os.environ)
        of_url, of_environment = settings_of(parsed.tls), tls_settings_of(os.environ)
        more["tls"] = TlsSettings(**tls_flags()).over(of_url).over(of_environment).tls
    except ValueError as error:
        raise ConfigurationError(str(error)) from None
    if credentials is not None:
        more["credentials"] = credentials
    return Client(url, **more)


EXIT_FAILED = 1
EXIT_USAGE = 2

OFFSET_MAX = 10**12
"""Numbers below this are offsets, others are ms since 1970: as a time, it is in 2001."""

DIGITS_MAX = 18
"""Digits of a number: servers read signed numbers of 64 bits."""
TIMEOUT_MAX_S = 600
"""As of the client's requests."""
INTERVAL_MAX_S = 86_400
"""A day between two measurements; without a limit, `inf` would wait for ever."""


def _with_profile(context: typer.Context, url: str) -> str:
    """The URL of --url, which may be a profile's name; else that of the profile in use."""
    source = context.get_parameter_source("url")
    given = None if source is not None and source.name == "DEFAULT" else url
    chosen = chosen_url(given) or url
    note_url(chosen)
    return chosen


def chosen_url(given: str | None) -> str | None:
    """The URL of what was given, which may be a profile's name; None: that of the profile in use.

    A profile's name that does not exist is wrong usage.
    """
    try:
        return profiles.chosen_url(given, os.environ)
    except profiles.ProfileError as error:
        usage(str(error))


Url = Annotated[
    str,
    typer.Option(
        "--url",
        "-n",
        envvar="ROCKETMQ_URL",
        metavar="URL",
        help="Use these name servers: rocketmq://host:port;host:port?namespace=…, "
        "host:port;host:port, or a profile's name.",
        callback=_with_profile,
        autocompletion=profile_names,
    ),
]
TopicName = Annotated[
    str,
    typer.Argument(
        metavar="TOPIC", help="The topic.", autocompletion=topic_names, callback=note_topic
    ),
]
GroupName = Annotated[
    str,
    typer.Argument(
        metavar="GROUP", help="The group.", autocompletion=group_names, callback=note_group
    ),
]
AnyGroup = Annotated[
    str,
    typer.Argument(
        metavar="[GROUP]",
        help="The group. Default: all.",
        autocompletion=group_names,
        callback=note_group,
    ),
]
BrokerName = Annotated[
    str,
    typer.Argument(
        metavar="BROKER",
        help="The broker: its name (the master), or host:port.",
        autocompletion=broker_names,
    ),
]


def _note_json(value: bool) -> bool:
    errors_as_json.set(value)
    return value


AsJson = Annotated[
    bool, typer.Option("--json", help="Print JSON, for scripts.", callback=_note_json)
]
TimeoutS = Annotated[
    float,
    typer.Option(
        "--timeout",
        min=0.001,
        max=TIMEOUT_MAX_S,
        metavar="S",
        help="Give up a request after S seconds.",
    ),
]


class Shared(NamedTuple):
    """The flags of each command that asks a cluster; `with_shared_flags` adds them to its own."""

    url: Url = DEFAULT_URL
    as_json: AsJson = False
    timeout_s: TimeoutS = 3.0


SHARED: Final = Shared()
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation prompt.")]
Cluster = Annotated[
    str,
    typer.Option(
        "--cluster",
        metavar="NAME",
        help="Use this cluster; required if there are several.",
        autocompletion=cluster_names,
    ),
]

OnlyCluster = Annotated[
    str,
    typer.Option(
        "--cluster",
        metavar="NAME",
        help="Use only this cluster. Default: all.",
        autocompletion=cluster_names,
    ),
]
Since = Annotated[
    str, typer.Option("--since", metavar="TIME", help="Only those stored at TIME or later.")
]
Until = Annotated[
    str, typer.Option("--until", metavar="TIME", help="Only those stored at TIME or before.")
]
Limit = Annotated[int, typer.Option("--limit", min=1, metavar="N", help="Print at most N.")]
"""TIME is as `read_time` has it."""

TEXT_SHOWN_MAX = 64
"""Characters of a wrong string in an error."""

T = TypeVar("T")

_SPAN = re.compile(r"([0-9]{1,9})([smhd])", re.ASCII)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def usage(message: str) -> NoReturn:
    """Report wrong usage in one line, and end with status 2."""
    say_error(message)
    raise typer.Exit(EXIT_USAGE)


def fail(message: object) -> NoReturn:
    """Report a failure in one line, and end with status 1."""
    say_error(one_line(message))
    raise typer.Exit(EXIT_FAILED)


def run(main: Callable[..., Awaitable[T]], *args: Any) -> T:
    """Run an asynchronous command; the client's errors become lines and an exit status.

    An error that the client does not document is a bug here, and keeps its traceback.
    """
    import anyio

    from ..client import ClientError, ConfigurationError

    try:
        with _warnings_as_lines() as handler:
            done = anyio.run(_interruptible, main, args, handler, backend="trio")
    except BaseException as error:
        found = list(leaves(error))
        for leaf in found:
            if isinstance(leaf, KeyboardInterrupt):
                raise typer.Exit(EXIT_INTERRUPTED) from None
        for leaf in found:
            if isinstance(leaf, typer.Exit):
                raise typer.Exit(leaf.exit_code) from None
        for leaf in found:
            if isinstance(leaf, OutputError):
                raise leaf from None
        if not all(isinstance(leaf, ClientError) for leaf in found):
            if len(found) > 1:
                raise
            raise found[0] from found[0].__cause__
        for line in _lines(found):
            say_error(line)
        is_usage = all(isinstance(leaf, ConfigurationError) for leaf in found)
        raise typer.Exit(EXIT_USAGE if is_usage else EXIT_FAILED) from None
    if not done:
        raise typer.Exit(EXIT_INTERRUPTED)
    return done[0]


def _lines(errors: Sequence[BaseException]) -> Iterable[str]:
    """What errors of the client say to a person: first, which of the names is not there."""
    found = [error for error in errors if isinstance(error, Exception)]
    missing = absent() if any(map(is_about_names, found)) else ""
    return [missing] if missing else dict.fromkeys(one_line(plain_error(each)) for each in found)


def expect_names() -> None:
    """End with status 1 if the cluster does not have a topic or a group of the command line."""
    end_with(absent())


async def _interruptible(
    main: Callable[..., Awaitable[T]], args: Sequence[Any], handler: _LineHandler
) -> list[T]:
    """The result of `main` in a list; an empty list after Ctrl-C, which cancels `main`.

    After Ctrl-C, warnings about what the cancellation interrupts are dropped.
    """
    import anyio

    done: list[T] = []

    async def watch(scope: anyio.CancelScope) -> None:
        with anyio.open_signal_receiver(signal.SIGINT) as signals:
            async for _ in signals:
                handler.setLevel(logging.CRITICAL + 1)
                scope.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(watch, group.cancel_scope)
        done.append(await main(*args))
        group.cancel_scope.cancel()
    return done


def administer(shared: Shared, verb: Callable[[Admin], Awaitable[T]]) -> T:
    """Open an Admin, call `verb` with it, close it.

    Returns: the verb's result. An error ends the command, also if only some brokers failed, unless
      the verb uses `whole_or_part`.
    """

    async def main() -> T:
        from ..client import Admin

        async with new_client(shared.url, shared.timeout_s) as client, Admin(client) as admin:
            return await verb(admin)

    return run(main)


def ask_brokers(shared: Shared, verb: Callable[[Admin], Awaitable[T]]) -> tuple[T, str]:
    """`administer` with a verb that asks several brokers. Returns: as `whole_or_part`."""
    return administer(shared, lambda admin: whole_or_part(verb(admin)))


async def whole_or_part(answer: Awaitable[T]) -> tuple[T, str]:
    """A call's result, or the part of it from the brokers that answered.

    Returns: the result; and why the other brokers failed, "" if none did.
    """
    from ..client import BrokersError

    try:
        return await answer, ""
    except BrokersError as error:
        if error.partial is None:
            raise
        return error.partial, str(error)


def end_with(*errors: str) -> None:
    """Print the errors that are not empty; if there are any, end with status 1."""
    reported = [error for error in errors if error]
    for error in reported:
        say_error(one_line(error))
    if reported:
        raise typer.Exit(EXIT_FAILED)


def note_none(found: Collection[object], text: str) -> None:
    """Say for people that a list is empty; scripts have JSON, or no line."""
    if not found and not errors_as_json.get():
        say(f"trocket: {text}")


def confirm(question: str, *, yes: bool) -> None:
    """Ask for confirmation on a terminal; without one, --yes is required."""
    if yes:
        return
    if not sys.stdin.isatty():
        usage(f"{question} Add --yes to confirm")
    if not typer.confirm(f"{question} Continue?"):
        raise typer.Exit(EXIT_FAILED)


# Output


def emit(value: object) -> None:
    """Print a value as one line of JSON on standard output."""
    import msgspec

    typer.echo(msgspec.json.encode(value).decode())


# Input


def read_time(text: str, flag: str, now_ms: int) -> int:
    """Parse a time: ISO 8601, ms since 1970, or a span before now: `90s`, `5m`, `2h`, `1d`.

    Returns: ms since 1970.
    """
    if text.isascii() and text.isdecimal() and len(text) <= DIGITS_MAX:
        return int(text)
    span = _SPAN.fullmatch(text)
    if span is not None:
        return max(now_ms - int(span[1]) * _SECONDS[span[2]] * 1000, 0)
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        usage(
            f"{flag}: {text[:TEXT_SHOWN_MAX]!r} is not a time: write 2026-11-21T06:00:00, 2h (ago),"
            " or milliseconds since 1970"
        )


def is_offset(text: str) -> bool:
    """Whether a string is an offset, where a time may stand, too."""
    is_number = text.isascii() and text.isdecimal() and len(text) <= DIGITS_MAX
    return is_number and int(text) < OFFSET_MAX


def read_range(since: str, until: str, now_ms: int) -> tuple[int, int]:
    """Parse the flags --since and --until; without one, that side has no bound.

    Returns: first and last ms since 1970.
    """
    begin_ms = read_time(since, "--since", now_ms) if since else 0
    end_ms = read_time(until, "--until", now_ms) if until else (1 << 63) - 1
    return begin_ms, end_ms


def read_pairs(pairs: Iterable[str], flag: str) -> dict[str, str]:
    """Parse the `name=value` pairs of a repeatable flag."""
    found = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator or not name:
            usage(f"{flag}: {pair!r} is not NAME=VALUE")
        found[name] = value
    return found


def read_perm(text: str, flag: str) -> int:
    """Parse a topic's permission, RW, R or W, to its bits: 4 read, 2 write."""
    bits = {"RW": 6, "R": 4, "W": 2}.get(text.upper())
    if bits is None:
        usage(f"{flag}: {text!r} is not RW, R or W")
    return bits


def read_queue(text: str, flag: str) -> tuple[str, int]:
    """Parse a queue, BROKER:ID, to the broker's name and the queue's id."""
    broker, separator, number = text.rpartition(":")
    is_number = number.isascii() and number.isdecimal() and len(number) < 10
    if not separator or not broker or not is_number:
        usage(f"{flag}: {text!r} is not BROKER:ID")
    return broker, int(number)


class _LineHandler(logging.Handler):
    """Prints log records as single lines on standard error, without tracebacks."""

    def emit(self, record: logging.LogRecord) -> None:
        say(f"trocket: {one_line(record.getMessage())}")


@contextlib.contextmanager
def _warnings_as_lines() -> Iterator[_LineHandler]:
    logger = logging.getLogger("trocket")
    handler = _LineHandler(logging.WARNING)
    logger.addHandler(handler)
    try:
        yield handler
    finally:
        logger.removeHandler(handler)
