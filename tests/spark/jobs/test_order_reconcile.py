"""Stuck orders of generated data: as streams, and as batches over the queues and the files."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("pyspark", reason="pyspark is of the extra `spark`")

from trocket.blocking import Message, Producer
from trocket.spark.jobs.demo import Stage
from trocket.spark.jobs.demo import order_reconcile as demo
from trocket.spark.jobs.order_reconcile import main
from trocket.testing import Broker

pytestmark = pytest.mark.slow


def test_stuck_orders_are_found_by_every_way(spark, tmp_path, capsys) -> None:
    with Broker(folder=tmp_path / "broker") as broker:
        stage = Stage(broker, tmp_path)
        made = demo.fill(stage.name_server, 120, seed=11)
        assert all(made.values())
        with Producer(broker.url) as producer:
            producer.send(Message("TopicOrder", "no order"))
        assert main([*demo.arguments(stage, made), "--quiet", "--json"]) == 1
        summary = json.loads(capsys.readouterr().out)
        assert summary["unpaid"] == len(made["unpaid"])
        assert demo.check(stage, made)
        alert = broker.messages("TopicOrderAlert")[0]
        body = json.loads(alert.body)
        assert (alert.tags, alert.keys) == (body["kind"], body["orderId"])
        assert alert.properties["SPARK_ROW_ID"] == f"{body['kind']}@{body['orderId']}"

        # One alert vanishes and one is made up: a batch over the queues sees both.
        capsys.readouterr()
        broker.delete_topic("TopicOrderAlert")
        broker.create_topic("TopicOrderAlert", queues=1)
        kept = [(kind, each) for kind in ("unpaid", "unshipped") for each in sorted(made[kind])]
        with Producer(broker.url) as producer:
            for kind, order in [*kept[1:], ("unpaid", "nobody")]:
                text = json.dumps({"kind": kind, "orderId": order})
                producer.send(Message("TopicOrderAlert", text))
        line = ["--name-server", stage.name_server, *demo.times(), "--json"]
        assert main([*line, "--batch", "--verify"]) == 1
        summary = json.loads(capsys.readouterr().out)
        assert summary["alerts missing in the topic"] == summary["alerts only in the topic"] == 1

        broker.restart()  # now all queues are on disk
        alerts, halves = str(tmp_path / "alerts"), str(tmp_path / "halves")
        files = ["--store", str(stage.store), "--alert-files", alerts, "--half-files", halves]
        assert main([*demo.times(), "--json", *files]) == 1
        summary = json.loads(capsys.readouterr().out)
        assert (summary["half messages open"], summary["half messages given up"]) == (
            len(made["half"]),
            0,
        )
        found = {(row["kind"], row["orderId"]) for row in spark.read.parquet(alerts).collect()}
        assert found == set(kept)
        rows = spark.read.parquet(halves).collect()
        assert {row["keys"] for row in rows} == made["half"]
        assert {(row["topic"], row["producerGroup"]) for row in rows} == {("TopicOrder", "shop-tx")}
