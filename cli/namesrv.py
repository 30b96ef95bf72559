"""`trocket namesrv`: a name server, or one of the commands about what name servers keep."""

from __future__ import annotations

import typer

app = typer.Typer()
