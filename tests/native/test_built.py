"""No test run in pure Python by accident: CI fails where the extension could have been built."""

from __future__ import annotations

import os

import pytest

from trocket import native
from trocket.native.sources import is_pure

from .compiler import missing_to_build


def test_the_extension_is_built_where_there_is_a_compiler() -> None:
    if is_pure(os.environ):
        pytest.skip(native.choice.description)
    if missing := missing_to_build():
        pytest.skip(missing)
    if os.environ.get("CI") != "true" and native.extension is None:
        pytest.skip(f"only CI must have it: {native.choice.description}")
    assert native.extension is not None, native.choice.description


def test_the_switch_is_obeyed() -> None:
    assert native.extension is None or not is_pure(os.environ)
