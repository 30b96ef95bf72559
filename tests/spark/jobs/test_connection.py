"""Connections of jobs: options from flags, refused flags, and a cluster with access control."""

from __future__ import annotations

import json
import os
import ssl

import pytest

pytest.importorskip("pyspark", reason="pyspark is of the extra `spark`")

from trocket.blocking import Admin, Client
from trocket.client import Credentials
from trocket.spark.errors import OptionError
from trocket.spark.jobs import archive_parquet, dlq_report, lag_and_store_report, replay
from trocket.spark.jobs.connection import client, cluster_name, reading, writing
from trocket.spark.jobs.demo.dlq_report import consume
from trocket.spark.jobs.flags import KEYS, JobFlags, SinkJobFlags, read_flags
from trocket.spark.jobs.running import send

from .guarded_cluster import ACCESS_KEY, SECRET_KEY, check_signatures, guarded_cluster, write_files

ALL = "TROCKET_SPARK_GUARDED" in os.environ
"""Set: the jobs that take long reach the guarded cluster, too."""
CLUSTER = ("--name-server", "n:1")


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """Remove the account of the user who runs the tests from the environment."""
    for name in KEYS.values():
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def parsed(*flags, has_sink=True):
    kind = SinkJobFlags if has_sink else JobFlags
    return read_flags(kind, "job", "A job.", [*CLUSTER, *flags])


@pytest.mark.slow
def test_flags_are_the_options_of_every_source_and_sink() -> None:
    given = parsed("--namespace", "ns", "--secrets-file", "/s", "--tls", "--tls-ca-file", "/ca",
                   "--option", "NUMRETRIES=7", "--option", "pullBatchSize=9",
                   "--option", "filterSql=a = 'b'", "--option", "batchSize=5")  # fmt: skip
    common = {"nameServer": "n:1", "namespace": "ns", "secretsFile": "/s", "tls": "true",
              "tlsCaFile": "/ca", "topic": "T", "numRetries": "7"}  # fmt: skip
    source = {"pullBatchSize": "9", "filterSql": "a = 'b'"}
    assert reading(given, topic="T") == {**common, **source}
    assert writing(given, topic="T") == {**common, "batchSize": "5"}
    assert reading(parsed(), topic="T") == {"nameServer": "n:1", "topic": "T"}


@pytest.mark.parametrize(
    ("flag", "text"),
    [
        ("numRetries", "for --option: 'numRetries' is not KEY=VALUE"),
        ("=1", "'=1' is not KEY=VALUE"),
        (
            "numretry=1",
            "have no option 'numretry'; did you mean numRetries",
        ),
        (
            "secretKey=swordfish",
            "give secretKey with --secrets-file or in the variable ROCKETMQ_SECRET_KEY",
        ),
        ("SECURITYTOKEN=swordfish", "give securityToken with --secrets-file"),
        (
            "batchSize=3",
            "have no option 'batchSize'; did you mean pullBatchSize",
        ),
    ],
)
def test_an_option_that_cannot_be_is_wrong_use(capsys, flag, text) -> None:
    with pytest.raises(SystemExit) as ended:
        parsed("--option", flag, has_sink=False)
    assert ended.value.code == 2
    said = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert text in said
    assert "swordfish" not in said


def test_values_are_checked_and_what_the_job_says_is_not_said_again() -> None:
    with pytest.raises(OptionError, match="numRetries must be a whole number, not 'x'"):
        reading(parsed("--option", "numRetries=x"), topic="T")
    with pytest.raises(OptionError, match="--option topic: the job sets it itself"):
        writing(parsed("--option", "topic=U"), topic="T")
    with pytest.raises(OptionError, match="--option nameServer: the job sets it itself"):
        client(parsed("--option", "nameServer=x"))


@pytest.mark.parametrize(
    "text",
    ["h:1;[::1]:2", "rocketmq://h:1;[::1]:2", "rocketmq://a:swordfish@h:1;[::1]:2",
     "rocketmq://a:b@h:1;[::1]:2?security_token=swordfish&tls=true"],
)  # fmt: skip
def test_reports_and_errors_name_a_cluster_without_its_secrets(text) -> None:
    assert cluster_name(parsed("--name-server", text)) == "h:1;[::1]:2"


def test_keys_are_read_from_the_variables_of_the_command(environment, tmp_path) -> None:
    environment.setenv("ROCKETMQ_ACCESS_KEY", "a")
    with pytest.raises(OptionError, match="set both ROCKETMQ_ACCESS_KEY and ROCKETMQ_SECRET_KEY"):
        reading(parsed(), topic="T")
    environment.setenv("ROCKETMQ_SECRET_KEY", "b")
    assert client(parsed()).credentials == Credentials("a", "b")
    environment.setenv("ROCKETMQ_SECURITY_TOKEN", "c")
    assert client(parsed()).credentials == Credentials("a", "b", "c")
    # A file, and an account in the URL, count more.
    file = tmp_path / "tools.yml"
    file.write_text("accessKey: d\nsecretKey: e\n")
    assert client(parsed("--secrets-file", str(file))).credentials == Credentials("d", "e")
    url = ("--name-server", "rocketmq://f:g@n:1")
    assert client(parsed(*url)).credentials == Credentials("f", "g")


@pytest.mark.parametrize("text", [None, "no certificate"])
def test_a_file_of_certificates_that_is_none_is_named(tmp_path, text) -> None:
    path = tmp_path / "ca.pem"
    if text is not None:
        path.write_text(text)
    with pytest.raises(OptionError, match=rf"tlsCaFile {path} of TLS.+; every machine"):
        client(parsed("--tls-ca-file", str(path)))


@pytest.mark.slow
def test_jobs_reach_a_cluster_with_tls_access_control_and_a_namespace(
    spark, tmp_path, capsys
) -> None:
    with guarded_cluster() as (broker, name_server, authority):
        tls = ssl.create_default_context()
        authority.configure_trust(tls)
        account = Credentials(ACCESS_KEY, SECRET_KEY)
        counted = check_signatures(broker)
        with Client(name_server, tls=tls, credentials=account, namespace="shop") as own:
            with Admin(own) as admin:
                admin.create_topic("TopicOrder", 1)
            secrets, ca = write_files(tmp_path, authority)
            where = ["--name-server", name_server, "--namespace", "shop", "--tls-ca-file", ca]
            flags = [*where, "--secrets-file", secrets]
            rows = spark.range(2).selectExpr("to_json(struct(array('billing') refusedBy)) body")
            send(rows, parsed(*flags), "TopicOrder")
            consume(own, "billing", ["TopicOrder"], 2)
        before = counted.hits

        def run(job, *more):
            assert job.main([*flags, "--json", *more]) == 0
            return json.loads(capsys.readouterr().out)

        if ALL:
            archive = ["--topic", "TopicOrder", "--out", str(tmp_path / "archive")]
            assert run(archive_parquet, *archive, "--quiet")["messages archived"] == 2
            assert run(archive_parquet, *archive, "--verify")["findings"] == []
            assert run(lag_and_store_report, "--out", str(tmp_path / "report"))["messages"] == 4
        found = run(dlq_report, "--origin-topic", "TopicOrder")
        assert found["by"]["consumerGroup"] == {"billing": 2}
        assert found["by"]["originTopic"] == {"TopicOrder": 2}
        run(replay, "--origin-topic", "TopicOrder", "--audit", str(tmp_path / "audit"))
        assert len(broker.messages("shop%TopicOrder")) == 4
        assert counted.hits > before + 10

        assert dlq_report.main(where) == 2
        assert "not signed by the account" in capsys.readouterr().err
        assert dlq_report.main([*flags[:2], "--secrets-file", secrets, "--tls"]) == 2
        said = capsys.readouterr().err
        assert "certificate" in said
        assert ACCESS_KEY not in said
        assert SECRET_KEY not in said
