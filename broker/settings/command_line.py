"""The command line of a broker; apart, so that a help need not import the broker."""

from __future__ import annotations

from typing import Final

from ...common.command_line import APACHE_FLAGS, CONFIG_FROM_STDIN, Flag, Program

PROGRAM: Final = Program(
    "trocket broker",
    "Run a broker; takes the flags of RocketMQ's mqbroker.",
    (
        *APACHE_FLAGS,
        Flag(
            ("-m", "--printImportantConfig"),
            "print_important",
            "Print the keys that RocketMQ marks as important, and exit",
        ),
        CONFIG_FROM_STDIN,
    ),
    "Example: trocket broker -c broker.conf -n 127.0.0.1:9876",
)
