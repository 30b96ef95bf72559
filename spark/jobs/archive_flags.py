"""The flags of the job `archive_parquet`."""

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

    topic: Annotated[str, typer.Option(help="Archive these topics, separated by commas.")] = ""
    topic_pattern: Annotated[
        str, typer.Option(help="Archive topics that match this regular expression.")
    ] = ""
    out: Annotated[str, typer.Option(metavar="FOLDER", help="Write the archive to FOLDER.")]
    checkpoint: Annotated[
        str, typer.Option(help=f"Keep Spark's checkpoint here. Default: {CHECKPOINT} in --out.")
    ] = ""
    starting_offsets: Annotated[str, typer.Option(help="Start a new archive here.")] = "earliest"
    continuous: Annotated[
        str, typer.Option(metavar="INTERVAL", help='Keep running, a batch every "1 minute".')
    ] = ""
    max_offsets_per_trigger: Annotated[
        int, typer.Option(help="Limit a batch to this number of messages.")
    ] = 1_000_000
    allow_loss: Annotated[
        bool,
        typer.Option(
            "--allow-loss", help="Continue if messages expired before they were archived."
        ),
    ] = False
    compact: Annotated[
        int | None,
        typer.Option(
            metavar="DAYS", help="Merge the batches of each hour in the newest DAYS; 0: in all."
        ),
    ] = None
    verify: Annotated[bool, typer.Option("--verify", help="Check the archive only.")] = False
    offline: Annotated[bool, typer.Option("--offline", help="Verify without brokers.")] = False
    findings: Annotated[int, typer.Option(help="Show at most this number of each kind.")] = 100
    rebuild_manifest: Annotated[
        bool,
        typer.Option("--rebuild-manifest", help="First rebuild the manifest from the rows."),
    ] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.verify and self.offline):
            self.need("--name-server")
        if self.topic and self.topic_pattern:
            raise typer.BadParameter("give one of --topic and --topic-pattern")
        if not (self.verify or self.topic or self.topic_pattern):
            raise typer.BadParameter("give --topic or --topic-pattern")
        try:
            re.compile(self.topic_pattern)
        except re.error as error:
            raise typer.BadParameter(
                f"--topic-pattern is not a regular expression: {error}"
            ) from error
