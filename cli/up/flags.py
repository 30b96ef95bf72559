"""The command line of `trocket up`."""

from __future__ import annotations

from typing import Final

from ...common.command_line import EXIT_WITH_PARENT, LOG_FORMAT, PRINT_ALL, Flag, Program, log_level

_SEVERAL: Final = "Several brokers, each in a process"
_TESTS: Final = "Tests that command the time"

PROGRAM: Final = Program(
    "trocket up",
    "Run name server and broker in one process, or several brokers in a process each.",
    (
        Flag(
            ("--home",),
            "home",
            "Store data in DIR (trocket in XDG_DATA_HOME, which is ~/.local/share by default); "
            "storePathRootDir in a file takes precedence",
            metavar="DIR",
        ),
        Flag(("--memory",), "memory", "Store data in memory, and lose it at the end"),
        Flag(
            ("--host",),
            "host",
            "Listen on HOST and advertise it to clients (127.0.0.1); with 0.0.0.0, listen on all "
            "addresses and advertise this machine's, or brokerIP1",
            metavar="HOST",
        ),
        Flag(
            ("--insecure",),
            "insecure",
            "Start without accounts though other machines can connect; a server that they cannot "
            "reach does not need it",
        ),
        Flag(
            ("--namesrv-port",),
            "namesrv_port",
            "Listen on PORT (9876); 0 takes any free port",
            metavar="PORT",
            kind=int,
        ),
        Flag(
            ("--broker-port",),
            "broker_port",
            "Listen on PORT (10911), and on PORT - 2 as VIP port; 0 takes any free port; with "
            "several brokers, it is the first one's, the next takes PORT + 10",
            metavar="PORT",
            kind=int,
        ),
        Flag(
            ("--metrics-port",),
            "metrics_port",
            "Serve metrics and health on PORT (5557); 0 takes any free port; with several brokers, "
            "whose metrics a file switches on, it is the first one's, the next takes PORT + 1",
            metavar="PORT",
            kind=int,
        ),
        Flag(
            ("--console",),
            "console",
            "Serve a web console beside the broker, and print its address",
        ),
        Flag(
            ("--console-port",),
            "console_port",
            "Serve the console on PORT (8082) of loopback; 0 takes any free port",
            metavar="PORT",
            kind=int,
            default=8082,
        ),
        Flag(("-c",), "config_file", "Read this broker.conf of RocketMQ", metavar="FILE"),
        Flag(
            ("--namesrv-config",),
            "namesrv_config",
            "Read this namesrv.conf of RocketMQ",
            metavar="FILE",
        ),
        PRINT_ALL,
        Flag(("--json",), "json", "Print one line of JSON when ready"),
        Flag(
            ("--ready-file",),
            "ready_file",
            "Write that line to FILE when ready, whole or not at all",
            metavar="FILE",
        ),
        EXIT_WITH_PARENT,
        log_level("warning"),
        LOG_FORMAT,
        Flag(
            ("--masters",),
            "masters",
            "Run N masters: broker-a, broker-b, …",
            metavar="N",
            kind=int,
            panel=_SEVERAL,
        ),
        Flag(
            ("--slaves",),
            "slaves",
            "Run N slaves of each master (0): broker-a-1, broker-b-1, …",
            metavar="N",
            kind=int,
            panel=_SEVERAL,
        ),
        Flag(
            ("--brokers",),
            "brokers",
            "Run N masters without slaves, as --masters N",
            metavar="N",
            kind=int,
            panel=_SEVERAL,
        ),
        Flag(
            ("--sync",),
            "is_sync",
            "Let masters confirm a send when a slave has it: brokerRole=SYNC_MASTER",
            panel=_SEVERAL,
        ),
        Flag(
            ("--failover",),
            "is_failover",
            "Run a controller, which makes another broker the master when one is lost; each master "
            "has a slave unless --slaves says otherwise",
            panel=_SEVERAL,
        ),
        Flag(
            ("--broker-config",),
            "own_files",
            "Read a broker.conf for one broker, such as broker-a=a.conf; it overrides -c "
            "(repeatable)",
            metavar="NAME=FILE",
            is_repeatable=True,
            panel=_SEVERAL,
        ),
        Flag(
            ("--test-clock",),
            "test_clock",
            "Start with a clock, faults and a disk that a test commands through a control port; "
            "without --home or --memory, the data is in a folder that is deleted at the end",
            panel=_TESTS,
        ),
        Flag(
            ("--control-port",),
            "control_port",
            "Serve the control port on PORT of loopback (0, any free port)",
            metavar="PORT",
            kind=int,
            panel=_TESTS,
        ),
    ),
    "Example: trocket up --memory",
)
