"""A stream that cannot begin: every call to it raises the reason.

PySpark (4.0 to 4.3) ends with its own UnboundLocalError where making a stream's reader fails:
`python_streaming_source_runner.main` stops a reader that it does not have, and the user's eyes
meet that error last. So a reader is made in any case, and Spark's first question to it fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from .errors import SparkConnectorError


class RefusedStream(DataSourceStreamReader):
    """In place of a reader.

    Args:
      reason: why there is no stream.
    """

    def __init__(self, reason: SparkConnectorError) -> None:
        self._reason = reason

    def initialOffset(self) -> dict[str, Any]:
        """Raises: SparkConnectorError: the reason."""
        raise self._reason

    def latestOffset(self, *_: Any) -> dict[str, Any]:
        """Raises: SparkConnectorError: the reason."""
        raise self._reason

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Raises: SparkConnectorError: the reason."""
        raise self._reason

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Raises: SparkConnectorError: the reason."""
        raise self._reason

    def stop(self) -> None:
        """Do nothing."""
