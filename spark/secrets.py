"""Credentials from a file, so that neither a job's code nor Spark's plans contain them.

The file is that of RocketMQ's tools (`conf/tools.yml`) with lines of `accessKey: ...`; lines of
`accessKey=...` work, too. Every machine that runs tasks needs it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from ..remoting.signature import Credentials
from .errors import OptionError

_LINE: Final = re.compile(r"\s*(accessKey|secretKey|securityToken)\s*[:=]\s*(.*?)\s*")


def read_secrets(path: str) -> Credentials:
    """Read the credentials in a file.

    Raises:
      OptionError: it cannot be read, or a key is missing. The message shows nothing of its content.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise OptionError(
            f"secretsFile {path} cannot be read on this machine: {reason}; copy it to every"
            " machine that runs tasks"
        ) from None
    found = {match[1]: match[2].strip("'\"") for line in lines if (match := _LINE.fullmatch(line))}
    for name in ("accessKey", "secretKey"):
        if not found.get(name):
            raise OptionError(f"secretsFile {path} has no line `{name}: ...`")
    return Credentials(found["accessKey"], found["secretKey"], found.get("securityToken") or None)
