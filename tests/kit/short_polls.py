"""Broker processes of ours in which receives by gRPC wait for 2 s at most.

Official clients that close wait for their receives, which the broker answers after 20 s when there
is no message.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Final

import pytest

from trocket.interop.process import LineProcess
from trocket.interop.trocket_peer import COMMAND, OurProcess

POLL_MS: Final = 2_000
PROGRAM: Final = f"""\
import sys
from functools import partial
from trocket.broker import grpc_clients
from trocket.cli.main import main
grpc_clients.Rules = partial(
    grpc_clients.Rules, grpc_client_consumer_max_long_polling_timeout_millis={POLL_MS}
)
sys.exit(main())
"""


def shorten_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start all further processes of ours with short polls."""

    def start(process: OurProcess, command: Sequence[str], **options: Any) -> None:
        assert tuple(command[: len(COMMAND)]) == COMMAND
        words = [sys.executable, "-c", PROGRAM, *command[len(COMMAND) :]]
        LineProcess.__init__(process, words, **options)

    monkeypatch.setattr(OurProcess, "__init__", start)
