"""The flags of the job that keeps an archive in Parquet, and verifies it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Final

import typer

from trocket.spark.jobs.flags import JobFlags

CHECKPOINT: Final = "_checkpoint"


@dataclass(frozen=True, kw_only=True)
class ArchiveFlags(JobFlags):
    """The command line of `archive_parquet`."""

    topic: Annotated[str, typer.Option(help="Names, with commas between them.")] = ""
    topic_pattern: Annotated[str, typer.Option(help="Or a regular expression.")] = ""
    out: Annotated[str, typer.Option(metavar="FOLDER", help="The archive.")]
    checkpoint: Annotated[str, typer.Option(help=f"Else {CHECKPOINT} in the archive.")] = ""
    starting_offsets: Annotated[str, typer.Option(help="Of a new archive.")] = "earliest"
    continuous: Annotated[
        str, typer.Option(metavar="INTERVAL", help='Go on, a batch each "1 minute".')
    ] = ""
    max_offsets_per_trigger: Annotated[int, typer.Option()] = 1_000_000
    allow_loss: Annotated[
        bool,
        typer.Option(
            "--allow-loss", help="Go on where messages expired before they were archived."
        ),
    ] = False
    compact: Annotated[
        int | None,
        typer.Option(
            metavar="DAYS", help="One folder an hour, in each topic's newest DAYS; 0: all."
        ),
    ] = None
    verify: Annotated[bool, typer.Option("--verify", help="Archive nothing, look for faults.")] = (
        False
    )
    offline: Annotated[bool, typer.Option("--offline", help="Verify without brokers.")] = False
    findings: Annotated[int, typer.Option(help="To be shown of each kind.")] = 100
    rebuild_manifest: Annotated[
        bool,
        typer.Option("--rebuild-manifest", help="First write it anew, of the rows that there are."),
    ] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.verify and self.offline):
            self.need("--name-server")
        if self.topic and self.topic_pattern:
            raise typer.BadParameter("give one of --topic and --topic-pattern")
        if not (self.verify or self.topic or self.topic_pattern):
            raise typer.BadParameter("--topic or --topic-pattern is needed here")
        try:
            re.compile(self.topic_pattern)
        except re.error as error:
            raise typer.BadParameter(
                f"--topic-pattern is no regular expression: {error}"
            ) from error
