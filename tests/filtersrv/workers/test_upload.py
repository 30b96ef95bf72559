from __future__ import annotations

import pytest

from trocket.filtersrv.filters import FilterCompileError
from trocket.filtersrv.workers import (
    CLASS_NAME_LENGTH_MAX,
    SOURCE_BYTES_MAX,
    check_class_name,
    check_source,
)
from trocket.filtersrv.workers.upload import clean_text


@pytest.mark.parametrize("name", ["A", "a.b.C", "_a.$b.C9", "x" * CLASS_NAME_LENGTH_MAX])
def test_a_name_of_identifiers_is_taken(name: str) -> None:
    check_class_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "a.",
        ".a",
        "a..b",
        "1a",
        "../../etc/passwd",
        "a/b",
        "a\\b",
        "a b",
        "a;rm -rf",
        "$(id)",
        "`id`",
        "a\0b",
        "a\n",
        "a\r\nb",
        "-version",
        "@args",
        "a-b",
        "Größe",
        "x" * (CLASS_NAME_LENGTH_MAX + 1),
    ],
)
def test_a_name_with_anything_else_is_refused(name: str) -> None:
    with pytest.raises(FilterCompileError, match="class name"):
        check_class_name(name)


def test_a_source_has_at_most_64_kib() -> None:
    check_source(b"x" * SOURCE_BYTES_MAX)
    with pytest.raises(FilterCompileError, match="at most 65536 bytes, not 65537"):
        check_source(b"x" * (SOURCE_BYTES_MAX + 1))


def test_what_a_worker_says_makes_no_lines_of_its_own_in_a_log() -> None:
    said = "bad\nERROR forged\x1b[2J\u202e end "
    assert clean_text(said, length_max=100) == "bad ERROR forged [2J  end"
    assert clean_text("one\ntwo", length_max=100, keep="\n") == "one\ntwo"
    assert clean_text("x" * 100, length_max=10) == "x" * 10
