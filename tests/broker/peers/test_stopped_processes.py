"""Processes under SIGSTOP beside a real broker: it is reached and takes messages at once."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

from trocket.interop.apache import broker_conf_text
from trocket.interop.ports import free_port
from trocket.interop.process import LineProcess
from trocket.interop.trocket_peer import COMMAND

from ...attacks.raw_client import RawClient

SERVED_S = 10.0
"""For a start of Python on a busy machine; the registration would take 24 s."""
STOPPED_S = 15.0
START_TIMEOUT_S = 30.0


def launch(folder: Path, name: str, keys: dict[str, object]) -> LineProcess:
    (folder / f"{name}.conf").write_text(broker_conf_text(keys))
    return LineProcess(
        [*COMMAND, name, "-c", str(folder / f"{name}.conf")],
        folder=folder,
        name=name,
        environment={"PYTHONUNBUFFERED": "1"},
    )


def reached(port: int) -> RawClient:
    """A client of a broker that may still start."""
    deadline_s = time.monotonic() + SERVED_S
    while True:
        with suppress(OSError):
            return RawClient(f"127.0.0.1:{port}", timeout_s=SERVED_S)
        assert time.monotonic() < deadline_s, "the broker is not reached"


@pytest.mark.slow
def test_a_broker_starts_serves_and_stops_while_its_only_name_server_is_stopped(tmp_path):
    ports = {"namesrv": free_port(), "broker": free_port()}
    name_server = launch(
        tmp_path, "namesrv", {"listenPort": ports["namesrv"], "bindAddress": "127.0.0.1"}
    )
    name_server.wait_line(lambda line: "boot success" in line, timeout_s=START_TIMEOUT_S)
    os.kill(name_server.pid, signal.SIGSTOP)
    try:
        broker = launch(
            tmp_path,
            "broker",
            {
                "brokerName": "b", "brokerIP1": "127.0.0.1", "bindAddress": "127.0.0.1",
                "listenPort": ports["broker"], "storePathRootDir": tmp_path / "store",
                "namesrvAddr": f"127.0.0.1:{ports['namesrv']}",
            },
        )  # fmt: skip
        with reached(ports["broker"]) as client:
            assert client.send("T", 0, b"while it starts")[0] == 0
        began_s = time.monotonic()
        assert broker.stop(timeout_s=STOPPED_S) == 0
        assert time.monotonic() - began_s < STOPPED_S
    finally:
        os.kill(name_server.pid, signal.SIGCONT)
        name_server.kill()
