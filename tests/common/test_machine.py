"""What the machine says of itself."""

from __future__ import annotations

import ipaddress

from trocket.common.machine import host_name, local_address


def test_the_local_address_is_an_ipv4_address_of_this_machine() -> None:
    address = ipaddress.IPv4Address(local_address())
    assert not address.is_unspecified
    assert not address.is_multicast


def test_the_host_name_can_be_a_brokers_name() -> None:
    assert "\n" not in host_name()
