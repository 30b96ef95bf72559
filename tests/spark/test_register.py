"""Making the formats known to a session."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

pytest.importorskip("pyspark", reason="pyspark is of the extra `spark`")

from trocket.spark import SET_BY_SPARK, register


class Sources:
    """A session that records registered formats with the variables at that time."""

    def __init__(self) -> None:
        self.context = SimpleNamespace(environment={"OWN": "1", "SPARK_BUFFER_SIZE": "7"})
        self.registered = {}

    def register(self, source) -> None:
        self.registered[source.name()] = dict(self.context.environment)


def test_streams_that_start_at_once_find_the_variables_that_spark_sets():
    sources = Sources()
    own = dict(sources.context.environment)
    register(SimpleNamespace(sparkContext=sources.context, dataSource=sources))
    assert sources.registered == {
        name: {**SET_BY_SPARK, **own} for name in ("rocketmq", "rocketmq-store")
    }
    assert sources.context.environment == own


def test_the_variables_are_those_of_the_source_in_java(spark):
    context = spark.sparkContext
    register(spark)
    assert not SET_BY_SPARK.keys() & context.environment.keys()
    found = spark._jsparkSession.sessionState().dataSourceManager().lookupDataSource("rocketmq")
    assert SET_BY_SPARK.items() <= dict(found.dataSourceCls().envVars()).items()
