"""The daemon of Spark's Python workers."""

from __future__ import annotations

import importlib

import pytest

pytest.importorskip("pyspark", reason="pyspark is of the extra `spark`")

from trocket.spark.daemon import LOST, quiet
from trocket.spark.local_settings import DAEMON


@pytest.mark.parametrize("error", [BrokenPipeError, ConnectionResetError])
def test_a_worker_whose_query_has_ended_ends_without_a_traceback(error) -> None:
    def worker(connection, authenticated):
        raise error

    assert quiet(worker)(None, True) == LOST


def test_other_workers_are_as_they_were() -> None:
    assert quiet(lambda connection, authenticated: 7)(None, True) == 7
    with pytest.raises(OSError, match="disk"):
        quiet(lambda connection, authenticated: (_ for _ in ()).throw(OSError("disk")))(None, True)


def test_the_setting_names_the_module_and_workers_run_in_it(spark) -> None:
    importlib.import_module(DAEMON["spark.python.daemon.module"])
    named = spark.conf.get("spark.python.daemon.module")
    assert named == DAEMON["spark.python.daemon.module"]
    assert spark.sparkContext.parallelize([1, 2]).map(lambda each: each + 1).collect() == [2, 3]
