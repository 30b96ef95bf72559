"""The command line of a filter server; apart, so that a help need not import the filter server."""

from __future__ import annotations

from typing import Final

from ..common.command_line import APACHE_FLAGS, CONFIG_FROM_STDIN, Program

PROGRAM: Final = Program(
    "trocket filtersrv",
    "Run a filter server beside a broker; takes the flags of RocketMQ's mqfiltersrv.",
    (*APACHE_FLAGS, CONFIG_FROM_STDIN),
    "Example: trocket filtersrv -c filtersrv.conf -n 127.0.0.1:9876",
)
