"""What older versions of PySpark lack: said by name, where it is asked for.

Imports of what an older version has not are made behind `require`, so that the rest works with it.
"""

from __future__ import annotations

import re

import pyspark

from .errors import OptionError
from .source_options import FORMAT


def require(feature: str, major: int, minor: int) -> None:
    """Refuse what this PySpark cannot do.

    Args:
      feature: what was asked for, as its user knows it.
      major, minor: of the first PySpark that can.

    Raises:
      OptionError: this one is older.
    """
    found = re.match(r"(\d+)\.(\d+)", pyspark.__version__)
    if found is not None and tuple(map(int, found.groups())) < (major, minor):
        raise OptionError(
            f"{feature} needs PySpark {major}.{minor} or newer, and this is {pyspark.__version__};"
            " docs/spark.md has a table of what works with which"
        )


def require_streams() -> None:
    """Refuse to read a stream with a PySpark that does not tell sources where they are.

    Raises: OptionError.
    """
    require(f'readStream.format("{FORMAT}")', 4, 2)
