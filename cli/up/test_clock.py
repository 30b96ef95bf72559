"""The data folder of `trocket up --test-clock`: a throwaway one, or one that such a run made.

Times that a test commands must not come near real messages: retention would delete them, and what
is stored while the clock is ahead is wrong for ever. So a folder of such a run has a marker, other
folders with data are refused, and so is a usual start on a marked folder.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ...common.config import ConfigError
from ...store.config import MessageStoreConfig

MARKER: Final = "test-clock"
"""The file in a folder that a run with a test clock made."""

_MARKER_TEXT: Final = (
    "A run of `trocket up --test-clock` wrote these files: their times are not real.\n"
)


@contextmanager
def folder_of(options: argparse.Namespace) -> Iterator[None]:
    """Have `options.home` be a folder that is deleted at the end, if none is given for the data of
    a test clock. Raises: OSError: there is no room for one."""
    if not options.test_clock or options.memory or options.home:
        yield
        return
    import tempfile  # for such runs only: a start waits for its imports

    with tempfile.TemporaryDirectory(
        prefix="trocket-test-clock-", ignore_cleanup_errors=True
    ) as home:
        options.home = home
        yield


def check(options: argparse.Namespace, home: Path, store: MessageStoreConfig) -> None:
    """Refuse a test clock for real data, and the real clock for data of a test.

    Raises: ConfigError: a folder is not of the kind that the flags ask for.
    """
    if not options.test_clock:
        if options.control_port is not None:
            raise ConfigError("--control-port is for tests: add --test-clock")
        marked = [folder for folder in folders(home, store) if (folder / MARKER).exists()]
        if marked:
            raise ConfigError(
                f"{marked[0]} is of a run with --test-clock, whose times are not real: add "
                "--test-clock, or give another folder"
            )
        return
    for folder in folders(home, store):
        if not (folder / MARKER).exists() and folder.is_dir() and any(folder.iterdir()):
            raise ConfigError(
                f"--test-clock: {folder} has files that no run with --test-clock made, and "
                "advancing the clock would spoil them: leave out --home and storePathRootDir for a "
                "folder that is deleted at the end, or give an empty one"
            )


def mark(made: Iterable[Path]) -> None:
    """Write the marker into folders of a run with a test clock. Raises: OSError."""
    for folder in made:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MARKER).write_text(_MARKER_TEXT, encoding="ascii")


def folders(home: Path, store: MessageStoreConfig) -> list[Path]:
    """The data folders of a run."""
    given = (store.store_path_root_dir, store.store_path_commit_log)
    return list(dict.fromkeys([home, *(Path(each) for each in given if each)]))
