"""The report of `trocket up` that it is ready: for people, for programs, and into a file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...common import process
from ...common.whole_file import replacing


def announce(facts: Mapping[str, Any], text: str, *, as_json: bool, ready_file: str | None) -> None:
    """Say that all servers are ready.

    Args:
      facts: for programs, as one line of JSON.
      text: for people, on standard output unless `as_json`.
      ready_file: gets the line, too, before anything is printed; None: there is none.

    Raises: OSError: the file cannot be written.
    """
    line = json.dumps(facts)
    if ready_file is not None:
        with replacing(Path(ready_file), syncs=False) as file:
            file.write(line.encode() + b"\n")
    process.say(line if as_json else text)
