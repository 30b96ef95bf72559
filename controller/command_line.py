"""The command line of a controller; apart, so that a help need not import the controller."""

from __future__ import annotations

from typing import Final

from ..common.command_line import (
    EXIT_WITH_PARENT,
    LOG_FORMAT,
    PRINT_ALL,
    Flag,
    Program,
    log_level,
)

PROGRAM: Final = Program(
    "trocket controller",
    "Run a controller, which elects the masters of sets of brokers.",
    (
        Flag(
            ("-c", "--configFile"),
            "config_file",
            "Read this properties file, such as RocketMQ's controller.conf",
            metavar="FILE",
        ),
        PRINT_ALL,
        EXIT_WITH_PARENT,
        log_level(),
        LOG_FORMAT,
    ),
    "Example: trocket controller -c controller.conf",
)
