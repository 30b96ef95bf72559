"""The commands of interop/image/Dockerfile, run without Docker."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import pytest

from .conftest import Command

pytestmark = pytest.mark.slow

IMAGE = Path(__file__).resolve().parents[2] / "interop" / "image" / "Dockerfile"


def words(instruction: str, **replaced: str) -> list[str]:
    """The arguments of the command that an instruction of the file has in JSON."""
    (found,) = re.findall(rf"^{instruction}\b[^\[]*(\[.*\])$", IMAGE.read_text(), re.MULTILINE)
    program, *rest = json.loads(found)
    assert program == "trocket"
    for old, new in replaced.items():
        assert old in "".join(rest)
        rest = [word.replace(old, new) for word in rest]
    return rest


def test_the_servers_start_and_the_health_check_sees_them_and_their_end(tmp_path: Path) -> None:
    config = tmp_path / "broker.conf"
    config.write_text("brokerIP1=127.0.0.1\n")  # what the RUN instruction writes
    start = words("ENTRYPOINT", **{"/data": str(tmp_path), "/etc/trocket/broker.conf": str(config)})
    servers = Command(*start, "--json", "--namesrv-port", "0", "--broker-port", "0")
    try:
        port = servers.ready()["namesrv"].rpartition(":")[2]
        check = words("HEALTHCHECK", **{"9876": port})
        status, _, error = Command(*check).end()
        assert status == 0, error
        status, _, error = servers.end(signal.SIGTERM)  # STOPSIGNAL
        assert status == 0, error
    finally:
        servers.process.kill()
    status, _, error = Command(*check).end()
    assert status != 0
    assert "no name server answered" in error
