"""One Spark session for all tests of a run: starting one takes seconds."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from . import jvm

ROOT = Path(__file__).resolve().parent.parent.parent
WORKER_SITE = Path(__file__).resolve().parent / "worker_site"
"""The folder of the module that Spark's Python workers import first."""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session with two threads, whose formats are registered and whose filters are pushed.

    A task is tried four times, as on a cluster; `local[2]` would try it once.
    """
    sql = pytest.importorskip("pyspark.sql", reason="pyspark is of the extra `spark`")
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java 17")
    # Workers import what the tests import, from wherever this checkout is. They are children of the
    # JVM: other tests of this process keep their environment.
    packages = [str(WORKER_SITE), str(ROOT), *sys.path]
    environment = pytest.MonkeyPatch()
    environment.setenv("PYSPARK_PYTHON", sys.executable)
    environment.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    environment.setenv("PYTHONPATH", os.pathsep.join(path for path in packages if path))
    scratch = tmp_path_factory.mktemp("spark")
    from trocket.spark.local_settings import local_settings

    java_options = f"{jvm.java_options()} -Dderby.system.home={scratch}"
    session = (
        sql.SparkSession.builder.master("local[2,4]")
        .appName("trocket-tests")
        .config(map=local_settings(os.environ))  # as jobs start it, but for the JVM's flags
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "768m")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(scratch))
        .config("spark.local.dir", str(scratch))
        .config("spark.driver.extraJavaOptions", java_options)
        .config("spark.sql.python.filterPushdown.enabled", "true")
        .config("spark.python.authenticate.socketTimeout", "120s")  # for a busy machine
        .getOrCreate()
    )
    environment.undo()
    session.sparkContext.setLogLevel("OFF")
    import trocket.spark

    trocket.spark.register(session)
    yield session
    jvm.dump_classes(session.sparkContext._gateway.proc.pid)
    session.stop()


@pytest.fixture(autouse=True, scope="module")
def clients() -> Iterator[None]:
    """Close the clients that a driver keeps for its lifetime, so that no other test gets them."""
    yield
    cluster = sys.modules.get("trocket.spark.cluster")
    if cluster is not None:
        cluster.close_clients()
