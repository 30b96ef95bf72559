"""`trocket proxy` as a process: its ready line, its end, and what is wrong with its flags."""

from __future__ import annotations

import json
from pathlib import Path

import grpc
import pytest
import trustme

from trocket.interop.trocket_peer import COMMAND, UNBUFFERED, OurProcess
from trocket.proxy.__main__ import main
from trocket.testing import Broker

from ..grpc_server.caller import Caller


def address_of(line: str) -> str:
    return line.rpartition("address ")[2].strip()


def test_it_serves_until_sigterm(tmp_path: Path) -> None:
    with Broker() as broker:
        broker.create_topic("T")
        words = [*COMMAND, "proxy", "-n", broker.namesrv_address, "--listen", "127.0.0.1:0"]
        process = OurProcess(words, folder=tmp_path, name="proxy", environment=UNBUFFERED)
        try:
            line = process.wait_line(lambda line: "startup successfully" in line, timeout_s=30)
            with Caller(address_of(line)) as caller:
                assert caller.send("T", b"body").status.code == 20000
                answer = caller.start("ReceiveMessage", group={"name": "G"}, message_queue={
                    "topic": {"name": "T"}}, batch_size=1, invisible_duration={"seconds": 15},
                    filter_expression={"type": 1, "expression": "*"},
                )  # fmt: skip
                process.stop(timeout_s=10)  # though a receive waits
                answer.cancel()
        finally:
            process.kill()


def test_it_needs_no_name_server_to_start(tmp_path: Path) -> None:
    words = [*COMMAND, "proxy", "-n", "127.0.0.1:1", "--listen", "127.0.0.1:0"]
    process = OurProcess(words, folder=tmp_path, name="proxy", environment=UNBUFFERED)
    try:
        line = process.wait_line(lambda line: "startup successfully" in line, timeout_s=30)
        with Caller(address_of(line)) as caller:
            answer = caller.call("QueryRoute", topic={"name": "T"})
            assert answer.status.code == 50001
            assert "127.0.0.1:1" in answer.status.message
        process.stop(timeout_s=10)
    finally:
        process.kill()


def test_one_port_takes_connections_with_and_without_tls(tmp_path: Path) -> None:
    authority = trustme.CA()
    own = authority.issue_cert("127.0.0.1")
    own.private_key_pem.write_to_path(tmp_path / "key.pem")
    own.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    keys = {
        "tlsTestModeEnable": False,
        "tlsKeyPath": str(tmp_path / "key.pem"),
        "tlsCertPath": str(tmp_path / "cert.pem"),
    }
    path = tmp_path / "rmq-proxy.json"
    path.write_text(json.dumps(keys))
    trust = grpc.ssl_channel_credentials(authority.cert_pem.bytes())
    with Broker() as broker:
        broker.create_topic("T")
        words = [*COMMAND, "proxy", "-n", broker.namesrv_address, "--listen", "127.0.0.1:0"]
        words += ["--config", str(path)]
        process = OurProcess(words, folder=tmp_path, name="proxy", environment=UNBUFFERED)
        try:
            line = process.wait_line(lambda line: "startup successfully" in line, timeout_s=30)
            for each in (trust, None):
                with Caller(address_of(line), trust=each) as caller:
                    assert caller.send("T", b"body").status.code == 20000
        finally:
            process.kill()


def test_flags_override_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rmq-proxy.json"
    path.write_text(json.dumps({"namesrvAddr": "a:1", "grpcServerPort": 1, "maxMessageSize": 9}))
    assert main(["--config", str(path), "-n", "b:2", "--listen", "127.0.0.1:18081", "-p"]) == 0
    out = capsys.readouterr().out
    lines = ("namesrvAddr=b:2", "bindAddress=127.0.0.1", "grpcServerPort=18081", "maxMessageSize=9")
    assert [line for line in lines if line not in out.split("\n")] == []


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "namesrvAddr is not set"),
        (["-n", "a:1", "--listen", "here"], "--listen: 'here' is not an address"),
        (["-n", "a:1", "--config", "/nonexistent.json"], "cannot be read"),
    ],
)
def test_wrong_flags_are_said(
    words: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert text in capsys.readouterr().err
