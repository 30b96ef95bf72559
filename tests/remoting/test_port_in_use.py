"""What has a port that cannot be listened on: the words of the error are true."""

from __future__ import annotations

import socket
from contextlib import closing
from pathlib import Path

import pytest

from trocket.remoting.acceptor import open_listener

HAS_TABLES = pytest.mark.skipif(
    not Path("/proc/net/tcp").exists(), reason="this system has no table of its sockets"
)


def listening(host: str, *, backlog: int = 8) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.bind((host, 0))
    sock.listen(backlog)
    return sock


def port_of(sock: socket.socket) -> int:
    return sock.getsockname()[1]


def error_of(host: str, port: int) -> str:
    with pytest.raises(OSError, match="cannot listen on") as caught:
        open_listener(host, port).close()
    return str(caught.value)


@HAS_TABLES
@pytest.mark.parametrize(
    ("listens_on", "wanted", "words"),
    [
        ("127.0.0.1", "127.0.0.1", "a process listens there;"),
        ("0.0.0.0", "127.0.0.1", "a process listens on 0.0.0.0:{}, which includes this address;"),
        ("0.0.0.0", "", "a process listens there;"),
        ("127.0.0.2", "0.0.0.0", "on 127.0.0.2:{}, and a listener on all addresses excludes it;"),
        ("127.0.0.2", "", "on 127.0.0.2:{}, and a listener on all addresses excludes it;"),
        ("::", "127.0.0.1", "a process listens on [::]:{}, which includes this address;"),
        ("::1", "::", "on [::1]:{}, and a listener on all addresses excludes it;"),
        ("::1", "::1", "a process listens there;"),
    ],
)
def test_the_address_of_a_listener_is_named(listens_on, wanted, words):
    try:
        taken = listening(listens_on)
    except OSError:
        pytest.skip(f"this machine has no {listens_on}")
    with closing(taken):
        port = port_of(taken)
        error = error_of(wanted, port)
    assert words.format(port) in error
    assert "no process" not in error


@HAS_TABLES
def test_a_listener_with_a_full_backlog_is_a_listener():
    with closing(listening("127.0.0.1", backlog=0)) as taken:
        waiting = [socket.socket() for _ in range(4)]
        for sock in waiting:
            sock.setblocking(False)
            sock.connect_ex(taken.getsockname())
        error = error_of("127.0.0.1", port_of(taken))
        for sock in waiting:
            sock.close()
    assert "a process listens there" in error


@HAS_TABLES
def test_the_local_end_of_a_connection_is_named_with_its_peer():
    with closing(listening("127.0.0.1")) as server:
        with socket.create_connection(server.getsockname()) as client:
            error = error_of("127.0.0.1", port_of(client))
        assert "no process listens there" in error
        assert f"of a connection to 127.0.0.1:{port_of(server)}" in error


@HAS_TABLES
def test_a_port_that_is_bound_and_not_listened_on_is_no_connection():
    with closing(socket.socket()) as bound:
        bound.bind(("127.0.0.1", 0))
        error = error_of("127.0.0.1", port_of(bound))
    assert "has bound it without listening" in error
    assert "local end" not in error


@HAS_TABLES
def test_a_name_for_an_address_is_no_obstacle():
    with closing(listening("127.0.0.1")) as taken:
        assert "a process listens" in error_of("localhost", port_of(taken))


def test_without_a_table_of_sockets_only_a_connection_proves_a_listener(tmp_path):
    from trocket.remoting.port_in_use import who_has

    tables = [str(tmp_path / "tcp")]
    with closing(listening("127.0.0.1")) as taken:
        assert who_has("127.0.0.1", port_of(taken), tables).startswith("a process listens there")
    with closing(socket.socket()) as bound:
        bound.bind(("127.0.0.1", 0))
        assert "cannot be known" in who_has("127.0.0.1", port_of(bound), tables)
