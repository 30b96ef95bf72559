"""Command lines of jobs: a dataclass whose fields are the flags, parsed by typer."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, Final, TypeVar, get_type_hints

import typer

from trocket.spark.errors import nearest
from trocket.spark.options import key_of
from trocket.spark.sink_options import SinkOptions
from trocket.spark.source_options import FORMAT, SourceOptions

KEYS: Final = {
    "accessKey": "ROCKETMQ_ACCESS_KEY",
    "secretKey": "ROCKETMQ_SECRET_KEY",
    "securityToken": "ROCKETMQ_SECURITY_TOKEN",
    "tlsKeyPassword": "ROCKETMQ_TLS_KEY_PASSWORD",
}
"""Options with secrets, and the environment variables that set them."""

ACCOUNT: Final = tuple(KEYS.values())[:3]
"""The variables of an account."""

_CLUSTER: Final = "The cluster"

F = TypeVar("F", bound="JobFlags")


@dataclass(frozen=True, kw_only=True)
class JobFlags:
    """The flags of every job; each job adds its own in a subclass.

    No flag takes a secret, as other users can read command lines: keys come from a file, or from
    the environment variables of the `trocket` command.

    Attributes:
      formats: the option classes that --option may set.

    Raises:
      typer.BadParameter: flags contradict each other, or one is missing.
    """

    formats: ClassVar[tuple[type, ...]] = (SourceOptions,)

    master: Annotated[
        str,
        typer.Option(
            metavar="URL", help="Use this Spark master. Default: spark-submit's, or local[*]."
        ),
    ] = ""
    json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False
    name_server: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            help="Use these name servers, separated by semicolons.",
            rich_help_panel=_CLUSTER,
        ),
    ] = ""
    namespace: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Use topics and groups of this namespace.",
            rich_help_panel=_CLUSTER,
        ),
    ] = ""
    secrets_file: Annotated[
        str,
        typer.Option(
            metavar="PATH",
            help="Read accessKey and secretKey from this file, as RocketMQ's conf/tools.yml, which"
            f" every machine needs. Default: {', '.join(ACCOUNT)}.",
            rich_help_panel=_CLUSTER,
        ),
    ] = ""
    tls: Annotated[
        bool,
        typer.Option(
            "--tls", help="Connect to name servers and brokers with TLS.", rich_help_panel=_CLUSTER
        ),
    ] = False
    tls_ca_file: Annotated[
        str,
        typer.Option(
            metavar="PATH",
            help="Trust the authorities whose certificates are in this file; implies TLS.",
            rich_help_panel=_CLUSTER,
        ),
    ] = ""
    tls_cert_file: Annotated[
        str,
        typer.Option(
            metavar="PATH",
            help="Show the certificate in this file to servers; implies TLS.",
            rich_help_panel=_CLUSTER,
        ),
    ] = ""
    tls_key_file: Annotated[
        str,
        typer.Option(
            metavar="PATH",
            help="The certificate's private key. Default: it is in the same file.",
            rich_help_panel=_CLUSTER,
        ),
    ] = ""
    tls_no_verify: Annotated[
        bool,
        typer.Option(
            "--tls-no-verify",
            help="Trust any server, as RocketMQ's clients do; implies TLS.",
            rich_help_panel=_CLUSTER,
        ),
    ] = False
    option: Annotated[
        list[str],
        typer.Option(
            metavar="KEY=VALUE",
            help=f"Set an option of the job's {FORMAT} sources and sinks, such as numRetries=600"
            " (repeatable).",
            rich_help_panel=_CLUSTER,
        ),
    ] = dataclasses.field(default_factory=list)

    @cached_property
    def options(self) -> list[tuple[str, str]]:
        """The names and values of --option. Raises: typer.BadParameter: an option is invalid."""
        known: dict[str, str] = {}
        for kind in self.formats:
            known |= names_of(kind)
        return [_pair(known, text) for text in self.option]

    def __post_init__(self) -> None:
        _ = self.options  # reports an invalid option now, not after Spark has started

    def need(self, *flags: str) -> None:
        """Require flags: `need("--name-server")`. Raises: typer.BadParameter: one is missing."""
        for flag in flags:
            if not getattr(self, flag.removeprefix("--").replace("-", "_")):
                raise typer.BadParameter(f"{flag} is required")


@dataclass(frozen=True, kw_only=True)
class SinkJobFlags(JobFlags):
    """The flags of a job that also writes messages."""

    formats: ClassVar[tuple[type, ...]] = (SourceOptions, SinkOptions)


@dataclass(frozen=True, kw_only=True)
class StreamJobFlags(SinkJobFlags):
    """The flags of a job that is a stream, or a batch over the queues or over a store's files."""

    checkpoint: Annotated[str, typer.Option(metavar="FOLDER", help="Keep checkpoints here.")] = ""
    available_now: Annotated[
        bool, typer.Option("--available-now", help="Stop after all current messages.")
    ] = False
    batch: Annotated[
        bool, typer.Option("--batch", help="Run a batch over the queues, not a stream.")
    ] = False
    store: Annotated[
        str, typer.Option(metavar="FOLDER", help="Run a batch over a broker's files.")
    ] = ""

    @property
    def is_batch(self) -> bool:
        return bool(self.batch or self.store)


def read_flags(kind: type[F], name: str, doc: str | None, words: Sequence[str] | None) -> F:
    """Parse a job's command line; wrong flags, and --help, end the process as in typer.

    Args:
      doc: the job's docstring; its first line is the help's summary.
      words: without the program's name; None: those of this process.

    Raises:
      SystemExit: status 2 for wrong flags, 0 for --help.
    """
    made: list[F] = []

    def command(**values: Any) -> None:
        made.append(kind(**values))

    hints = get_type_hints(kind, include_extras=True)
    fields = dataclasses.fields(kind)
    vars(command)["__signature__"] = inspect.Signature(
        [
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=_default_of(field),
                annotation=hints[field.name],
            )
            for field in fields
        ]
    )
    command.__annotations__ = {field.name: hints[field.name] for field in fields}
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    summary = (doc or "").split("\n")[0]
    example = f"Example: trocket pipeline {name} --demo (with generated data)"
    app.command(help=summary, epilog=example)(command)
    try:
        app(None if words is None else list(words), prog_name=name)
    except SystemExit:
        if not made:
            raise
    return made[0]


def _default_of(field: dataclasses.Field[object]) -> object:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default


def names_of(kind: type) -> dict[str, str]:
    """The names of a format's options, by lower case, as Spark does not keep the case."""
    names = [key_of(field.name) for field in dataclasses.fields(kind)]
    return {name.lower(): name for name in names}


def _pair(known: dict[str, str], text: str) -> tuple[str, str]:
    """The name and value of one --option."""
    key, is_pair, value = text.partition("=")
    key = key.strip()
    if not is_pair or not key:
        raise _bad_option(f"{text!r} is not KEY=VALUE")
    name = known.get(key.lower())
    if name in KEYS:
        raise _bad_option(
            f"other users can read the command line: give {name} with --secrets-file or in the"
            f" variable {KEYS[name]}"
        )
    if name is None:
        raise _bad_option(
            f"the job's {FORMAT} formats have no option {key!r}{nearest(key, known.values())}"
        )
    return name, value


def _bad_option(problem: str) -> typer.BadParameter:
    return typer.BadParameter(problem, param_hint="--option")
