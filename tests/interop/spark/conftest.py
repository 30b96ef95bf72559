"""The session of the Spark tests, for those that need Apache's brokers, too."""

from __future__ import annotations

from ...spark.conftest import clients, spark

__all__ = ["clients", "spark"]
