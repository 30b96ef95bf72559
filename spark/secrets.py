"""Credentials from a file, so that they stand in no job's code and travel with no plan.

The file is that of RocketMQ's own tools (`conf/tools.yml`), lines of `accessKey: ...`; lines of
`accessKey=...` do, too. It is on every machine that runs a task.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from ..client.core.signature import Credentials
from .errors import OptionError

_LINE: Final = re.compile(r"\s*(accessKey|secretKey|securityToken)\s*[:=]\s*(.*?)\s*")


def read_secrets(path: str) -> Credentials:
    """What a file holds.

    Raises:
      OptionError: it cannot be read, or a key is missing. No text shows what is in it.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise OptionError(
            f"secretsFile {path} cannot be read on this machine: {reason}; it must be on all that"
            " run tasks"
        ) from None
    found = {match[1]: match[2].strip("'\"") for line in lines if (match := _LINE.fullmatch(line))}
    for name in ("accessKey", "secretKey"):
        if not found.get(name):
            raise OptionError(f"secretsFile {path} has no line `{name}: ...`")
    return Credentials(found["accessKey"], found["secretKey"], found.get("securityToken") or None)
