"""Making the formats known to a session."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

pytest.importorskip("pyspark", reason="pyspark is of the extra `spark`")

from trocket.spark import SET_BY_SPARK, register


class Sources:
    """A session that records registered formats with the variables at that time."""

    def __init__(self, master="local[2]", settings=()) -> None:
        self.context = SimpleNamespace(
            environment={"OWN": "1", "SPARK_BUFFER_SIZE": "7"},
            master=master,
            pythonExec="python3",
            getConf=lambda: SimpleNamespace(contains=lambda key: key in settings),
        )
        self.registered = {}
        self.pythons = set()

    def register(self, source) -> None:
        self.registered[source.name()] = dict(self.context.environment)
        self.pythons.add(self.context.pythonExec)


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


@pytest.mark.parametrize(
    ("master", "settings", "variable", "expected"),
    [
        ("local[2]", (), None, sys.executable),
        ("local[2]", (), "/opt/python", "python3"),
        ("local[2]", ("spark.pyspark.python",), None, "python3"),
        ("spark://10.0.0.7:7077", (), None, "python3"),
    ],
)
def test_the_formats_run_in_the_driver_s_python_unless_another_is_configured(
    master, settings, variable, expected, monkeypatch
):
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    if variable:
        monkeypatch.setenv("PYSPARK_PYTHON", variable)
    sources = Sources(master, settings)
    register(SimpleNamespace(sparkContext=sources.context, dataSource=sources))
    assert sources.pythons == {expected}
    assert sources.context.pythonExec == "python3"
