"""docs/protocol.md tells what the servers' tables hold, and the differ asks for all of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from trocket.cli.protocol_table import PARTLY, SENT, page, served_codes, state
from trocket.interop.wire_differ.catalogue import catalogue, coverage
from trocket.remoting.request_codes import UNSERVED_BY_APACHE, RequestCode

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "protocol.md"


def test_the_page_is_what_the_generator_writes_now() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), (
        "run: python -m trocket.cli.protocol_table docs/protocol.md"
    )


def test_what_the_foundation_promises_is_served() -> None:
    served = served_codes()
    broker = {10, 310, 320, 11, 34, 35, 38, 40, 14, 15, 29, 30, 31, 32, 41, 42} - {40}
    assert broker <= served["broker"]
    assert {103, 104, 105, 106} <= served["name server"]
    assert served["filter server"] == {11, 302, 30302, 30303}
    assert all(code in set(RequestCode) for codes in served.values() for code in codes)


def test_each_served_code_gets_valid_and_invalid_requests() -> None:
    covered = coverage(catalogue())
    served = served_codes()
    # Apache's of 4.2.0 stands beside ours in tests/interop/filtersrv, with the official clients.
    del served["filter server"]
    # Its answers are compared in tests/controller and tests/interop/test_controller.py.
    del served["controller"]
    missing = [
        (server, code, "invalid" if wrong else "valid")
        for server, codes in served.items()
        for code in sorted(codes)
        for wrong in (False, True)
        if not covered[server, code, wrong]
    ]
    assert missing == []


def test_only_what_is_served_is_served_partly() -> None:
    served = frozenset().union(*served_codes().values())
    assert set(PARTLY) <= served
    assert state(RequestCode.POP_LITE_MESSAGE, "broker", served) == ""
    assert state(RequestCode.PULL_MESSAGE, "broker", served) == "partly"
    assert state(RequestCode.HEART_BEAT, "broker", served) == "yes"


@pytest.mark.slow
def test_what_apaches_servers_refuse_is_refused_here_and_asked_beside_them() -> None:
    covered = coverage(catalogue())
    for code in UNSERVED_BY_APACHE:
        assert not [server for server, codes in served_codes().items() if code in codes]
        assert covered["broker", code, True], code
        assert covered["name server", code, True], code


def test_what_a_server_sends_is_not_what_it_serves() -> None:
    for code, server in SENT.items():
        assert code not in served_codes()[server]
        assert state(code, server, frozenset()) == "sends"
        assert state(code, "another", frozenset()) == ""
