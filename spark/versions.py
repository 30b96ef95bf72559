"""Checks for features that older versions of PySpark lack.

Modules that need a newer PySpark are imported after `require`, so that the rest works with older
versions.
"""

from __future__ import annotations

import re

import pyspark

from .errors import OptionError
from .source_options import FORMAT


def require(feature: str, major: int, minor: int) -> None:
    """Check that this PySpark supports a feature.

    Args:
      feature: the feature, as users write it.
      major, minor: the first version of PySpark that has it.

    Raises:
      OptionError: this PySpark is older.
    """
    found = re.match(r"(\d+)\.(\d+)", pyspark.__version__)
    if found is not None and tuple(map(int, found.groups())) < (major, minor):
        raise OptionError(
            f"{feature} needs PySpark {major}.{minor} or newer, but this is {pyspark.__version__};"
            " docs/spark.md has a table of versions and features"
        )


def require_streams() -> None:
    """Check that this PySpark passes the current offset to stream sources.

    Raises: OptionError: it is older than 4.2.
    """
    require(f'readStream.format("{FORMAT}")', 4, 2)
