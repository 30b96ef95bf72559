"""Ports that are held for a broker."""

from __future__ import annotations

import socket

import pytest

from trocket.testing import ports

HOST = "127.0.0.1"

pytestmark = pytest.mark.skipif(not ports._LISTENS_BESIDE, reason="no port can be held here")


def test_a_port_that_is_held_is_not_taken_as_another_brokers_second() -> None:
    held = ports._hold(HOST, 0)
    port = held.getsockname()[1]
    with held, pytest.raises(OSError, match=f"cannot listen on {HOST}:{port}"):
        ports._hold(HOST, port, alone=True)


def test_a_broker_listens_on_the_ports_that_are_held_for_it() -> None:
    taken = ports.hold_ports(HOST)
    try:
        for port in (taken.namesrv, taken.broker, taken.broker - ports.VIP_PORT_STEP):
            with socket.socket() as listener:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind((HOST, port))
                listener.listen(1)
    finally:
        taken.close()
