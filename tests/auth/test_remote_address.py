"""White lists of ACL 1.0: every form that RocketMQ has, and what is none of them."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trocket.auth.remote_address import RemoteAddressError, RemoteAddresses, parts_of

BYTES = st.integers(0, 255)
V4 = st.tuples(BYTES, BYTES, BYTES, BYTES)
GROUPS = st.integers(0, 0xFFFF)
V6 = st.tuples(*[GROUPS] * 8)


def v4(parts: tuple[int, ...]) -> str:
    return ".".join(map(str, parts))


def v6(parts: tuple[int, ...]) -> str:
    return ":".join(f"{part:x}" for part in parts)


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("10.0.0.1", ["10.0.0.1", "::ffff:10.0.0.1"], ["10.0.0.2", "::1"]),
        ("10.0.0.1,10.0.0.3,fe80::1", ["10.0.0.3", "FE80:0::1"], ["10.0.0.2", "fe80::2"]),
        ("10.0.0.1, 10.0.0.3", ["10.0.0.3"], ["10.0.0.2"]),
        ("10.0.0.{1,3}", ["10.0.0.1", "10.0.0.3"], ["10.0.0.2", "10.0.1.1"]),
        ("10.0.0.*", ["10.0.0.0", "10.0.0.255"], ["10.0.1.0", "110.0.0.1"]),
        ("10.0.*.*", ["10.0.0.0", "10.0.255.9"], ["10.1.0.0"]),
        ("10.0.0.1-9", ["10.0.0.1", "10.0.0.9"], ["10.0.0.0", "10.0.0.10"]),
        ("10.0.1-9.*", ["10.0.5.77"], ["10.0.10.1"]),
        ("10.0.0.0-0", ["10.0.0.0"], ["10.0.0.1"]),
        ("10.0.*.7", ["10.0.1.7"], ["10.0.1.8"]),
        ("fe80::1", ["fe80:0:0:0:0:0:0:1", "fe80::1%eth0", "[fe80::1]"], ["fe80::2", "1.2.3.4"]),
        ("fe80::{1,a}", ["fe80::1", "fe80::A"], ["fe80::b"]),
        ("fe80:1::*", ["fe80:1::", "fe80:1::ffff"], ["fe80:1:0:0:0:0:1:0", "fe80:2::1"]),
        ("2::ac5:78:1-200", ["2::ac5:78:1", "2::ac5:78:200"], ["2::ac5:78:201", "2::ac5:78:0"]),
        ("2::ac5:78:1-200:*", ["2::ac5:78:1ff:9"], ["2::ac5:78:201:9", "2:1:0:0:ac5:78:1:9"]),
    ],
)
def test_forms(text: str, inside: list[str], outside: list[str]) -> None:
    addresses = RemoteAddresses(text)
    assert not addresses.is_everyone
    for host in inside:
        assert parts_of(host) in addresses, host
    for host in outside:
        assert parts_of(host) not in addresses, host
    assert parts_of("memory") not in addresses


@pytest.mark.parametrize("text", ["", "  "])
def test_blank_text_names_no_address(text: str) -> None:
    for host in ("10.0.0.1", "::1", "0.0.0.0", "memory"):
        assert parts_of(host) not in RemoteAddresses(text)


@pytest.mark.parametrize("text", ["*", "*.*.*.*", "*:*:*:*:*:*:*:*"])
def test_stars_name_every_address(text: str) -> None:
    for host in ("10.0.0.1", "::1", "memory"):
        assert parts_of(host) in RemoteAddresses(text)


@pytest.mark.parametrize(
    "text",
    [
        "nonsense",
        "10.0.0",
        "10.0.0.256",
        "10.0.0.1/8",
        "10.0.0.1,x",
        "10.0.0.{1,x}",
        "10.0.0.1{2,3}",
        "10.0.0}",
        "10.0.0.9-1",
        "10.0.0.-9",
        "10.0.0.1-",
        "10.0.0.1-300",
        "10.0.0.1-2-3",
        "1-9.0.0.1",
        "*.0.0.1",
        "10.*",
        "10.0.0.+1-2",
        "10.0.0.\u0661-\u0662",
        "fe80:*:1",
        "fe80::*:*",
        "fe80::1-2:3-4",
        "fe80::9-1",
        "fe80::1-2:1",
        "1:2:3:4:5:6:7:8:*",
        ":*",
        "*:",
    ],
)
def test_other_texts_are_refused_with_the_text(text: str) -> None:
    with pytest.raises(RemoteAddressError, match=r"Netaddress examine (scope )?Exception"):
        RemoteAddresses(text)


@given(V4, V4)
def test_one_address_names_itself_only(one: tuple[int, ...], other: tuple[int, ...]) -> None:
    addresses = RemoteAddresses(v4(one))
    assert parts_of(v4(one)) in addresses
    assert (parts_of(v4(other)) in addresses) == (one == other)


@given(V6, V6)
def test_one_ipv6_address_names_itself_in_every_spelling(
    one: tuple[int, ...], other: tuple[int, ...]
) -> None:
    for text in (v6(one), v6(one).upper(), str(IPv6Address(v6(one)))):
        addresses = RemoteAddresses(text)
        for host in (v6(one), IPv6Address(v6(one)).exploded):
            assert parts_of(host) in addresses
        assert (parts_of(v6(other)) in addresses) == (parts_of(v6(one)) == parts_of(v6(other)))


@given(V4, st.tuples(BYTES, BYTES), st.integers(1, 3), V4)
def test_a_range_includes_both_ends_and_checks_every_part(
    head: tuple[int, ...], ends: tuple[int, int], place: int, asked: tuple[int, ...]
) -> None:
    least, greatest = min(ends), max(ends)
    parts = [*map(str, head[:place]), f"{least}-{greatest}", *["*"] * (3 - place)]
    expected = asked[:place] == head[:place] and least <= asked[place] <= greatest
    assert (parts_of(v4(asked)) in RemoteAddresses(".".join(parts))) == expected
    near = (*head[:place], asked[place], *asked[place + 1 :])
    expected = least <= asked[place] <= greatest
    assert (parts_of(v4(near)) in RemoteAddresses(".".join(parts))) == expected


@given(V6, st.tuples(GROUPS, GROUPS), st.booleans(), GROUPS, GROUPS)
def test_an_ipv6_range(
    head: tuple[int, ...], ends: tuple[int, int], has_star: bool, asked: int, last: int
) -> None:
    least, greatest = min(ends), max(ends)
    fixed = head[: 6 if has_star else 7]
    text = v6(fixed) + f":{least:x}-{greatest:x}" + (":*" if has_star else "")
    host = v6((*fixed, asked, *([last] if has_star else [])))
    assert (parts_of(host) in RemoteAddresses(text)) == (least <= asked <= greatest)


@given(st.lists(V4, min_size=2, max_size=5), V4)
def test_a_list_names_its_members(members: list[tuple[int, ...]], asked: tuple[int, ...]) -> None:
    addresses = RemoteAddresses(",".join(map(v4, members)))
    assert all(parts_of(v4(member)) in addresses for member in members)
    assert (parts_of(v4(asked)) in addresses) == (asked in members)


@given(st.text("0123456789abcdef.:*-{}, ", max_size=24))
def test_any_text_is_a_list_or_refused(text: str) -> None:
    try:
        addresses = RemoteAddresses(text)
    except RemoteAddressError:
        return
    parts_of("10.0.0.1") in addresses  # noqa: B015 - no exception


@given(V4)
def test_parts_of_ipv4_in_ipv6(parts: tuple[int, ...]) -> None:
    assert parts_of(f"::ffff:{IPv4Address(v4(parts))}") == parts
