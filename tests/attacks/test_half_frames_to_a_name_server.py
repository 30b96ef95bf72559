"""The defect, seen in a name server: half frames of strangers ended its process.

This file knows a process and its wire only, so it can be run on a version that has the defect: copy
it and `little_memory.py` there.
"""

from __future__ import annotations

import socket
import sys
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from trocket.interop.apache import broker_conf_text
from trocket.interop.ports import free_port
from trocket.interop.process import PeerError
from trocket.interop.trocket_peer import OurProcess
from trocket.interop.wire import WireClient

from .little_memory import ADDRESS_SPACE_BYTES, HALF_FRAME, LIMITED, PROCESS_STRANGERS

GET_BROKER_CLUSTER_INFO = 106


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs RLIMIT_AS")
def test_a_name_server_with_little_address_space_outlives_half_frames(tmp_path: Path) -> None:
    port = free_port()
    keys = {"listenPort": port, "bindAddress": "127.0.0.1", "kvConfigPath": tmp_path / "kv.json"}
    (tmp_path / "namesrv.conf").write_text(broker_conf_text(keys))
    server = OurProcess(
        [
            *(sys.executable, "-c", LIMITED, str(ADDRESS_SPACE_BYTES)),
            *("namesrv", "-c", str(tmp_path / "namesrv.conf")),
        ],
        folder=tmp_path,
        name="namesrv",
        environment={"PYTHONUNBUFFERED": "1"},
    )
    served = 0
    try:
        server.wait_line(lambda line: "boot success" in line, timeout_s=30)
        with ExitStack() as stack:
            honest = stack.enter_context(WireClient(f"127.0.0.1:{port}"))
            for _ in range(PROCESS_STRANGERS):
                with suppress(ConnectionError):  # closed already: it was the largest
                    stranger = socket.create_connection(("127.0.0.1", port), timeout=30)
                    stack.callback(stranger.close)
                    stranger.sendall(HALF_FRAME)
                with suppress(PeerError):
                    served += honest.call(GET_BROKER_CLUSTER_INFO, {}).code == 0
        assert served == PROCESS_STRANGERS
        server.stop(timeout_s=30)
    finally:
        server.kill()
    log = (tmp_path / "namesrv.err").read_text()
    assert "Traceback" not in log
    assert "remotingBytesMax" in log
