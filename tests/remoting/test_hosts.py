"""remoting/hosts.py."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trocket.remoting.errors import LocalProtocolError, RemoteProtocolError
from trocket.remoting.hosts import HOST_V4, HOST_V6, host_bytes, host_parts, host_text

from ..constructs import as_construct

PORTS = st.integers(0, 65535)


@pytest.mark.parametrize(
    ("ip", "port", "hexadecimal", "text"),
    [
        ("127.0.0.1", 10911, "7f00000100002a9f", "127.0.0.1:10911"),
        (
            "2001:db8::2",
            10911,
            "20010db800000000000000000000000200002a9f",
            "[2001:db8::2]:10911",
        ),
        ("::ffff:10.0.0.9", 1, "0a00000900000001", "10.0.0.9:1"),
        ("fe80::1%eth0", 2, "fe80000000000000000000000000000100000002", "[fe80::1]:2"),
    ],
    ids=["IPv4", "IPv6", "IPv4 mapped into IPv6", "IPv6 with a zone"],
)
def test_an_address_is_written_as_a_record_holds_it(ip, port, hexadecimal, text):
    assert host_bytes(ip, port).hex() == hexadecimal
    assert host_text(bytes.fromhex(hexadecimal)) == text


@given(address=st.ip_addresses(), port=PORTS)
def test_an_address_survives_the_way_into_a_record_and_back(address, port):
    ip, read_port = host_parts(host_bytes(str(address), port))
    mapped = address.ipv4_mapped if address.version == 6 else None
    assert (ipaddress.ip_address(ip), read_port) == (
        mapped or ipaddress.ip_address(str(address).partition("%")[0]),
        port,
    )


@given(address=st.ip_addresses(v=4), port=PORTS)
def test_the_bytes_of_an_ipv4_host_are_those_of_the_declaration(address, port):
    built = as_construct(HOST_V4).build({"ip": address.packed, "port": port})
    assert host_bytes(str(address), port) == built


@given(ip=st.binary(min_size=16, max_size=16), port=PORTS)
def test_a_host_of_20_bytes_reads_as_the_declaration_says(ip, port):
    raw = as_construct(HOST_V6).build({"ip": ip, "port": port})
    address = ipaddress.IPv6Address(ip)
    assert host_parts(raw) == (str(address.ipv4_mapped or address), port)


@pytest.mark.parametrize(
    "ip", ["localhost", "", "1.2.3", "1.2.3.4.5", "::g", "1.2.3.4:80", "1.2.3.4%eth0"]
)
def test_what_is_no_address_is_refused(ip):
    with pytest.raises(LocalProtocolError, match="not an IP address"):
        host_bytes(ip, 1)


@pytest.mark.parametrize("port", [1 << 31, -(1 << 31) - 1])
@pytest.mark.parametrize("ip", ["1.2.3.4", "::1"])
def test_a_port_beyond_32_bits_is_refused(ip, port):
    with pytest.raises(LocalProtocolError, match="port"):
        host_bytes(ip, port)


@pytest.mark.parametrize("size", [0, 7, 9, 19, 21])
def test_a_host_of_another_size_is_refused(size):
    with pytest.raises(RemoteProtocolError, match=f"{size} bytes"):
        host_text(bytes(size))
