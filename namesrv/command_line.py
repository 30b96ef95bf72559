"""The command line of a name server; apart, so that a help need not import the name server."""

from __future__ import annotations

from typing import Final

from ..common.command_line import APACHE_FLAGS, Program

PROGRAM: Final = Program(
    "trocket namesrv",
    "Run a name server; takes the flags of RocketMQ's mqnamesrv.",
    APACHE_FLAGS,
    "Example: trocket namesrv -c namesrv.conf",
)
