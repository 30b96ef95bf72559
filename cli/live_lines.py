"""What separates the samples of a command that prints again and again."""

from __future__ import annotations

import sys

import typer

from ..common.terminal import time_text


def begin_sample(now_ms: int) -> None:
    """Print the time of a sample, with an empty line before it; in a pipe as a row `time`."""
    text = time_text(now_ms)
    typer.echo(f"\n{text}" if sys.stdout.isatty() else f"\ntime\t{text}")
