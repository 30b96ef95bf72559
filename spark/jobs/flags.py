"""Command lines of jobs: a dataclass whose fields are the flags, read by typer."""

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
}
"""Options that are an account, and the variables that they are read from."""

_CLUSTER: Final = "The cluster"

F = TypeVar("F", bound="JobFlags")


@dataclass(frozen=True, kw_only=True)
class JobFlags:
    """The flags of every job; a job's own class adds its own.

    No flag takes a secret, as others see command lines: keys come from a file, or from the
    variables that the `trocket` command reads, too.

    Attributes:
      formats: whose options --option may set.

    Raises:
      typer.BadParameter: the flags do not go together.
    """

    formats: ClassVar[tuple[type, ...]] = (SourceOptions,)

    master: Annotated[
        str, typer.Option(metavar="URL", help="Spark's; else spark-submit's, or local[*].")
    ] = ""
    json: Annotated[bool, typer.Option("--json", help="The summary as JSON.")] = False
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False
    name_server: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT", help="Several with ; between them.", rich_help_panel=_CLUSTER
        ),
    ] = ""
    namespace: Annotated[
        str, typer.Option(metavar="NAME", help="Of topics and groups.", rich_help_panel=_CLUSTER)
    ] = ""
    secrets_file: Annotated[
        str,
        typer.Option(
            metavar="PATH",
            help="With lines of accessKey and secretKey, as RocketMQ's conf/tools.yml; on all"
            f" machines. Else {', '.join(KEYS.values())} are read.",
            rich_help_panel=_CLUSTER,
        ),
    ] = ""
    tls: Annotated[
        bool,
        typer.Option("--tls", help="Name servers and brokers speak TLS.", rich_help_panel=_CLUSTER),
    ] = False
    tls_ca_file: Annotated[
        str,
        typer.Option(
            metavar="PATH",
            help="Certificates of the authorities to trust; implies TLS.",
            rich_help_panel=_CLUSTER,
        ),
    ] = ""
    option: Annotated[
        list[str],
        typer.Option(
            metavar="KEY=VALUE",
            help=f"An option of each {FORMAT} source and sink of the job, such as numRetries=600;"
            " may be given several times.",
            rich_help_panel=_CLUSTER,
        ),
    ] = dataclasses.field(default_factory=list)

    @cached_property
    def options(self) -> list[tuple[str, str]]:
        """What --option sets, by the options' names. Raises: typer.BadParameter."""
        known: dict[str, str] = {}
        for kind in self.formats:
            known |= names_of(kind)
        return [_pair(known, text) for text in self.option]

    def __post_init__(self) -> None:
        _ = self.options  # a wrong one is found here, and not when Spark has started

    def need(self, *flags: str) -> None:
        """Ask for flags: `need("--name-server")`. Raises: typer.BadParameter: one was not given."""
        for flag in flags:
            if not getattr(self, flag.removeprefix("--").replace("-", "_")):
                raise typer.BadParameter(f"{flag} is needed here")


@dataclass(frozen=True, kw_only=True)
class SinkJobFlags(JobFlags):
    """The flags of a job that writes by the format, too."""

    formats: ClassVar[tuple[type, ...]] = (SourceOptions, SinkOptions)


@dataclass(frozen=True, kw_only=True)
class StreamJobFlags(SinkJobFlags):
    """The flags of a job that is a stream, or a batch over the queues or over a store's files."""

    checkpoint: Annotated[str, typer.Option(metavar="FOLDER", help="The streams' progress.")] = ""
    available_now: Annotated[
        bool, typer.Option("--available-now", help="End when all is read.")
    ] = False
    batch: Annotated[bool, typer.Option("--batch", help="No stream, all that the queues have.")] = (
        False
    )
    store: Annotated[
        str, typer.Option(metavar="FOLDER", help="A batch over the files of a broker.")
    ] = ""

    @property
    def is_batch(self) -> bool:
        """Whether it reads what there is, and no stream."""
        return bool(self.batch or self.store)


def read_flags(kind: type[F], name: str, doc: str | None, words: Sequence[str] | None) -> F:
    """Read a job's command line; wrong flags, and --help, end the process as typer does.

    Args:
      doc: the job's docstring; its first line says what the job does.
      words: without the program's name; None: the process's own.

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
    example = f"Example: trocket pipeline {name} --demo (on data that it makes)"
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
    """The options of a format, by their names in lower case: Spark keeps no case."""
    names = [key_of(field.name) for field in dataclasses.fields(kind)]
    return {name.lower(): name for name in names}


def _pair(known: dict[str, str], text: str) -> tuple[str, str]:
    """One --option's name and value."""
    key, is_pair, value = text.partition("=")
    key = key.strip()
    if not is_pair or not key:
        raise _bad_option(f"{text!r} is not KEY=VALUE")
    name = known.get(key.lower())
    if name in KEYS:
        raise _bad_option(
            f"others see a command line: give {name} by --secrets-file, or by {KEYS[name]}"
        )
    if name is None:
        raise _bad_option(f"no {FORMAT} here has an option {key!r}{nearest(key, known.values())}")
    return name, value


def _bad_option(problem: str) -> typer.BadParameter:
    return typer.BadParameter(problem, param_hint="--option")
