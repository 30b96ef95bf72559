"""Lines between the samples of a command that prints several."""

from __future__ import annotations

import sys

import typer

from ..common.terminal import time_text


def begin_sample(now_ms: int, *, is_first: bool) -> None:
    """Print the time of a sample, in a pipe as a row `time`; an empty line separates samples."""
    if not is_first:
        typer.echo()
    text = time_text(now_ms)
    typer.echo(text if sys.stdout.isatty() else f"time\t{text}")
