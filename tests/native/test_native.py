"""The choice between the C extension and pure Python, and the extension's own argument checks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from trocket import native
from trocket.native.sources import sources_crc

DESCRIBE = "from trocket import native; print(native.choice.description)"


def described(**environment: str) -> str:
    """The description in a new process."""
    kept = {key: value for key, value in os.environ.items() if key != native.PURE_SWITCH}
    done = subprocess.run(
        [sys.executable, "-c", DESCRIBE],
        env=kept | environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout.strip()


@pytest.mark.slow
def test_an_environment_variable_switches_the_extension_off() -> None:
    for value in ("1", "true", "YES"):
        assert described(TROCKET_PURE=value) == "pure Python (TROCKET_PURE is set)"
    for value in ("", "0", "false", "No"):
        assert described(TROCKET_PURE=value) == described()


def test_the_checksum_changes_with_every_source(tmp_path: Path) -> None:
    folder = Path(native.__file__).parent
    for path in [*folder.glob("*.c"), *folder.glob("*.h")]:
        shutil.copy(path, tmp_path)
    before = sources_crc(tmp_path)
    assert before == sources_crc(folder)
    for path in list(tmp_path.iterdir()):
        text = path.read_bytes()
        path.write_bytes(text + b"/**/")
        assert sources_crc(tmp_path) != before
        path.write_bytes(text)
    assert sources_crc(tmp_path) == before


def test_the_extension_is_the_one_of_these_sources() -> None:
    if native.extension is None:
        pytest.skip(native.choice.description)
    assert native.extension.sources_crc == sources_crc(Path(native.__file__).parent)
    assert native.choice.description == "the C extension"


def test_wrong_arguments_are_type_errors() -> None:
    if native.extension is None:
        pytest.skip(native.choice.description)
    with pytest.raises(TypeError, match="takes 2 arguments, not 1"):
        native.extension.find_property(b"")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="bytes expected, not str"):
        native.extension.find_property("", b"")  # type: ignore[arg-type]
