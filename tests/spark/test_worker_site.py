"""The connection of a stream's planner, made before the planner's imports."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from .conftest import WORKER_SITE

PLANNER = "pyspark.sql.streaming.python_streaming_source_runner"
TIMEOUT_S = 30.0
PROGRAM = """
import os, socket
input()
planner = socket.socket(socket.AF_UNIX)
planner.settimeout(15)
planner.connect(os.environ["PYTHON_WORKER_FACTORY_SOCK_PATH"])
with planner.makefile("rwb") as stream:
    stream.write(b"ready")
    stream.flush()
    assert stream.read(2) == b"go"
other = socket.socket(socket.AF_UNIX)
other.connect(os.environ["PYTHON_WORKER_FACTORY_SOCK_PATH"])
"""
"""A planner whose imports last until a line arrives on stdin."""


def test_a_planner_is_connected_before_it_has_imported_anything(tmp_path) -> None:
    module = tmp_path.joinpath(*PLANNER.split(".")).with_suffix(".py")
    module.parent.mkdir(parents=True)
    module.write_text(PROGRAM)
    for folder in (module.parent, *module.parent.parents[:2]):
        (folder / "__init__.py").touch()
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
        listener.settimeout(TIMEOUT_S)
        path = str(Path(folder, "s"))  # tmp_path may be longer than a socket's name can be
        listener.bind(path)
        listener.listen()
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(WORKER_SITE), str(tmp_path)]),
            "PYTHON_WORKER_FACTORY_SOCK_PATH": path,
        }
        command = [sys.executable, "-m", PLANNER]
        with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE) as planner:
            try:
                connection, _ = listener.accept()
                with connection:
                    connection.settimeout(TIMEOUT_S)
                    assert planner.stdin is not None
                    planner.stdin.write(b"\n")
                    planner.stdin.close()
                    assert connection.recv(5, socket.MSG_WAITALL) == b"ready"
                    connection.sendall(b"go")
                    # The next connection is another one, as without the module.
                    listener.accept()[0].close()
                assert planner.wait(TIMEOUT_S) == 0
            finally:
                planner.kill()
