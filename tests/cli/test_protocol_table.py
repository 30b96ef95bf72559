"""docs/protocol.md tells what the servers' tables hold."""

from __future__ import annotations

from pathlib import Path

from trocket.cli.protocol_table import page, served_codes
from trocket.remoting.request_codes import RequestCode

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
    assert all(code in set(RequestCode) for codes in served.values() for code in codes)
