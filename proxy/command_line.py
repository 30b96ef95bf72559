"""The command line of a proxy; apart, so that a help need not import the proxy."""

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
    "trocket proxy",
    "Run a proxy for gRPC clients in front of a cluster; reads RocketMQ's rmq-proxy.json.",
    (
        Flag(
            ("-n", "--namesrvAddr"),
            "namesrv_addr",
            "Use these name servers, such as 192.168.0.1:9876;192.168.0.2:9876",
            metavar="ADDRESSES",
        ),
        Flag(
            ("--listen",),
            "listen",
            "Listen on this address (0.0.0.0:8081)",
            metavar="HOST:PORT",
        ),
        Flag(
            ("-c", "--config", "--proxyConfigPath"),
            "config_file",
            "Read this JSON file, such as RocketMQ's rmq-proxy.json",
            metavar="FILE",
        ),
        PRINT_ALL,
        EXIT_WITH_PARENT,
        log_level(),
        LOG_FORMAT,
    ),
    "Example: trocket proxy -n 192.168.0.1:9876 --listen 0.0.0.0:8081",
)
