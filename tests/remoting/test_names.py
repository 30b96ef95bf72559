"""Names and addresses from the wire."""

from __future__ import annotations

import pytest

from trocket.remoting.errors import RequestRefused
from trocket.remoting.names import (
    NAME_SIZE_MAX,
    check_address,
    check_name,
    is_address,
    is_name,
)
from trocket.remoting.response_codes import ResponseCode


@pytest.mark.parametrize(
    "name",
    ["TBW102", "%RETRY%group-1", "%DLQ%a|b", "broker.example.com", "x" * NAME_SIZE_MAX, "主题"],
)
def test_names_of_topics_and_hosts_are_names(name):
    assert is_name(name)


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../x", "a/b", "a\\b", "a b", "a\x00b", "a\nb", "x" * (NAME_SIZE_MAX + 1),
     "$(reboot)", "a;b", "`a`", "<a>", "\u200b"],
)  # fmt: skip
def test_paths_blanks_controls_and_shell_marks_are_no_names(name):
    assert not is_name(name)
    with pytest.raises(RequestRefused) as refusal:
        check_name("topic", name)
    assert refusal.value.code == ResponseCode.SYSTEM_ERROR
    assert len(refusal.value.remark) < 500


@pytest.mark.parametrize(
    "address", ["127.0.0.1:10911", "broker-a:1", "[::1]:65535", "fe80::1:10911"]
)
def test_host_and_port_is_an_address(address):
    assert is_address(address)
    check_address("broker address", address)


@pytest.mark.parametrize(
    "address",
    ["", ":1", "host", "host:", "host:0", "host:65536", "host:-1", "host:1a", "host:\u0661",
     "host:000001", "a b:1", "a/b:1"],
)  # fmt: skip
def test_anything_else_is_no_address(address):
    assert not is_address(address)
    with pytest.raises(RequestRefused, match="is not host:port"):
        check_address("broker address", address)
