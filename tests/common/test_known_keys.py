"""common/known_keys.py: the tables of keys, and how they are read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import trocket.common.known_keys
from trocket.cli.protocol_table import served_codes
from trocket.common.config import KnownKey
from trocket.common.known_keys import ABSENT, EFFECTS, parse_keys, read_keys
from trocket.remoting.request_codes import RequestCode

FOLDER = Path(trocket.common.known_keys.__file__).parent / "keys"
TABLES = sorted(path.stem for path in FOLDER.iterdir())
KINDS = {"bool", "int", "long", "double", "str", "enum"}


def test_a_table_of_keys_has_comments_sections_and_defaults() -> None:
    table = "# a comment\n[other]\nlistenPort int 0\nname! str two words\n\n[gone]\nold str -\n"
    assert parse_keys(table) == {
        "listenPort": KnownKey("listenPort", "int", "0", False, EFFECTS["other"]),
        "name": KnownKey("name", "str", "two words", True, EFFECTS["other"]),
        "old": KnownKey("old", "str", "-", False, EFFECTS["gone"]),
    }


@pytest.mark.parametrize("table", TABLES)
def test_a_table_is_well_formed(table: str) -> None:
    keys = read_keys(table)
    assert keys
    assert {key.kind for key in keys.values()} <= KINDS


def test_every_effect_is_of_a_section() -> None:
    effects = {key.effect for table in TABLES for key in read_keys(table).values()}
    assert effects == set(EFFECTS.values())


def test_of_a_key_in_two_tables_the_later_one_counts() -> None:
    of_sockets, of_broker = read_keys("netty"), read_keys("broker")
    assert of_sockets["listenPort"] != of_broker["listenPort"]
    assert read_keys("netty", "broker") == of_sockets | of_broker


MISSING = re.compile(r"not there|there is no\b|not supported|no controller")
WITHOUT_CODE = {
    "batch": "compaction",
    "other": "many small things",
    "rocksdb": "RocksDB",
    "tiered": "tiered storage",
}
"""Features that add no request: a commit that adds one changes the section."""


def test_what_the_texts_call_missing_is_not_served() -> None:
    calls_missing = {section for section, effect in EFFECTS.items() if MISSING.search(effect)}
    assert calls_missing == ABSENT.keys() | WITHOUT_CODE.keys()
    served = frozenset().union(*served_codes().values())
    stale = {
        section: [name for name in names if RequestCode[name] in served]
        for section, names in ABSENT.items()
    }
    assert {section: names for section, names in stale.items() if names} == {}
