"""The cells of TLS: who runs on what, and why the others do not. Without peers."""

from __future__ import annotations

from pathlib import Path

import pytest

from trocket.interop.report.cells import Cell, Kind
from trocket.interop.scenarios.table import CPP, GO, GO_NEXT, PYTHON, TLS_CLIENTS
from trocket.interop.tls_files import ENFORCING, PERMISSIVE, ClientTls, ServerTls, make_files
from trocket.interop.tls_jobs import ALL, jobs, reason_not_to_run
from trocket.interop.wire import TlsAddress

TOOLS = ("5.5.0", "4.9.7")
FOLDER = Path("/files")


def cells(broker: str = "trocket", *clients: str) -> list[Cell]:
    return [cell for job in jobs([broker], TOOLS, clients=clients or None) for cell in job.owed]


def test_every_client_has_a_cell_for_every_way() -> None:
    ways = [way.name for servers in ALL for way in servers.ways]
    assert len(ways) == 5
    found = cells()
    assert len(found) == len(ways) * (2 * len(TLS_CLIENTS) + len(TOOLS))
    assert len({cell.name for cell in found}) == len(found)
    assert {cell.kind for cell in found} == {Kind.TLS}
    assert {cell.feature.partition(", ")[2] for cell in found} == set(ways)


def test_clients_and_brokers_are_chosen() -> None:
    assert {cell.client for cell in cells("trocket", PYTHON[0])} == {PYTHON[0]}
    assert {cell.client for cell in cells("trocket", "mqadmin-4.9.7")} == {"mqadmin-4.9.7"}
    assert cells("docker-5.3.3") == cells("rocketmq://127.0.0.1:9876") == []


def reasons(broker: str, client: str) -> dict[str, str | None]:
    return {cell.feature: reason_not_to_run(cell) for cell in cells(broker, client)}


@pytest.mark.parametrize("client", [GO, CPP])
def test_a_client_without_tls_says_so_and_runs_plain(client: str) -> None:
    found = reasons("trocket", client)
    plain = found.pop("send_sync, permissive, plain")
    assert plain is None or "TLS" not in plain  # the client may be missing here
    for asking in ("query", "admin"):
        found.pop(f"{asking}, permissive, plain", None)
    assert all(reason is not None and "has no TLS" in reason for reason in found.values())


def test_go_encrypts_without_certificates() -> None:
    found = reasons("apache-4.9.7", GO_NEXT)
    for name in ("send_sync", "admin"):
        assert "cannot check" in (found.pop(f"{name}, one way") or "")
        assert "cannot show" in (found.pop(f"{name}, mutual") or "")
    assert set(found) == {
        f"{name}, {way}"
        for name in ("send_sync", "admin")
        for way in ("one way, unverified", "permissive, plain", "permissive, by TLS")
    }
    assert all(reason is None or "no go in PATH" in reason for reason in found.values())


def test_apache_4_cannot_answer_a_query_by_tls() -> None:
    found = reasons("apache-4.9.7", PYTHON[0])
    assert "breaks off the answer" in (found["query, mutual"] or "")
    assert found["query, permissive, plain"] is None
    assert found["send_sync, mutual"] is None
    assert set(reasons("apache-5.5.0", PYTHON[0]).values()) == {None}


def test_the_settings_of_a_client() -> None:
    assert ClientTls(FOLDER).url("h:1") == (
        "rocketmq://h:1?tls_ca=/files/client/ca.crt&tls_cert=/files/client/client.crt"
        "&tls_key=/files/client/client.key"
    )
    unverified = ClientTls(FOLDER, shows_certificate=False, verifies=False)
    assert unverified.url("h:1") == "rocketmq://h:1?tls_verify=false"
    assert unverified.java_options[1] == "-Dtls.config.file=/files/none"
    assert ClientTls(FOLDER).java_options[1] == "-Dtls.config.file=/files/client/tls.properties"


@pytest.mark.slow
def test_the_settings_of_servers(tmp_path: Path) -> None:
    files = tmp_path / "tls"
    make_files(files, "none")
    enforcing, permissive = (ServerTls(files, mode) for mode in (ENFORCING, PERMISSIVE))
    assert permissive.context is None
    assert enforcing.context is not None
    assert "-Dtls.server.mode=enforcing" in enforcing.java_options
    assert enforcing.keys["tlsConfigFile"] == files / "server" / "tls.properties"
    address = TlsAddress.of("127.0.0.1:1", enforcing.context)
    assert (f"{address}", address) == ("127.0.0.1:1", "127.0.0.1:1")
