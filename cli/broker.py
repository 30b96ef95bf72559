"""`trocket broker`: a broker, or one of the commands that administer running brokers."""

from __future__ import annotations

import typer

app = typer.Typer()
