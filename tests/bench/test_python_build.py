"""The Python of a broker is named with the options of its build."""

from __future__ import annotations

import platform

import pytest

from trocket.bench.python_build import broker_python, build_text

NEITHER = "configured without --enable-optimizations and --with-lto"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            "'--prefix=/usr' '--enable-optimizations' '--with-lto=thin'",
            "configured with --enable-optimizations and --with-lto",
        ),
        (
            "'--enable-optimizations' '--enable-shared'",
            "configured with --enable-optimizations, configured without --with-lto",
        ),
        ("'--enable-shared' 'LDFLAGS=-g -O2'", NEITHER),
        ("", "configured with unknown options"),
    ],
)
def test_the_options_of_configure_that_change_the_speed_are_named(
    arguments: str, expected: str
) -> None:
    assert build_text(arguments) == expected


def test_a_free_threaded_build_is_named() -> None:
    assert build_text("--enable-shared", is_free_threaded=True) == f"{NEITHER}, free-threaded"


def test_a_broker_with_further_variables_has_this_python() -> None:
    found = broker_python({"TROCKET_PURE": "1"})
    assert found.version.endswith(platform.python_version())
    assert found.version in str(found)
