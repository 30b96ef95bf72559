"""`rocketmq-store` in a Spark session: the same rows as without Spark, and errors one can read."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark is of the extra `spark`")

from tests.interop.golden_stores import manifest, unpack
from tests.store.offline.support import ROOT, poke, records, stopped_store

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def disk():
    return stopped_store()


def lay_out(disk, folder: Path) -> str:
    """A store of a memory disk as real files."""
    root = folder / "broker-a" / "store"
    for path, data in disk.contents.items():
        target = root / Path(path).relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    return str(root)


@pytest.fixture(scope="module")
def store(disk, tmp_path_factory):
    return lay_out(disk, tmp_path_factory.mktemp("store"))


def load(spark, path, **options):
    return spark.read.format("rocketmq-store").options(**options).load(path)


def test_every_record_is_a_row_with_all_columns(spark, disk, store) -> None:
    rows = load(spark, store, splitBytes="9000").orderBy("commitLogOffset").collect()
    messages = records(disk)
    assert [row.commitLogOffset for row in rows] == [m.physical_offset for m in messages]
    for row, message in zip(rows, messages, strict=True):
        assert bytes(row.body) == message.body
        assert row.properties == message.properties
        assert (row.keys, row.tags, row.uniqKey) == (message.keys, message.tags, message.unique_key)
        assert round(row.storeTimestamp.timestamp() * 1000) == message.store_timestamp_ms
        assert row.storeHost == message.store_host_text
        assert row.brokerName == "broker-a"


def test_a_users_schema_is_a_projection(spark, store) -> None:
    found = (
        spark.read.format("rocketmq-store").schema("queueOffset bigint, topic string").load(store)
    )
    assert found.columns == ["queueOffset", "topic"]
    assert found.where("topic = 'U'").count() == 25
    with pytest.raises(Exception, match="in the table commitlog it is body binary"):
        spark.read.format("rocketmq-store").schema("body string").load(store).collect()


def test_filters_give_what_they_give_without_pushing(spark, disk, store) -> None:
    middle = sorted(m.store_timestamp_ms for m in records(disk))[100]
    conditions = [
        "topic = 'U'",
        "topic IN ('U', 'T') AND tags = 'tag1'",
        f"storeTimestamp >= timestamp_millis({middle})",
        f"storeTimestamp < timestamp_millis({middle}) AND topic = 'T'",
        f"storeTimestamp = timestamp_millis({middle})",
        "tags IS NULL",
        "topic = 'U' AND topic = 'T'",
        "properties['KEYS'] LIKE 'k1%' OR topic = 'U'",
    ]
    for condition in conditions:
        pushed = load(spark, store, pushdown="true").where(condition)
        plain = load(spark, store).where(condition)
        key = ["commitLogOffset"]
        assert pushed.select(key).orderBy(key).collect() == plain.select(key).orderBy(key).collect()


def test_a_view_in_sql_and_a_limit(spark, store) -> None:
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW log USING `rocketmq-store` OPTIONS (path '{store}')"
    )
    counts = {row.tags: row.n for row in spark.sql(
        "SELECT tags, count(*) n FROM log WHERE topic = 'T' GROUP BY tags").collect()}  # fmt: skip
    assert counts.pop("tag0") == 63
    assert len(spark.sql("SELECT * FROM log LIMIT 3").collect()) == 3


def test_all_tables_can_be_read(spark, store) -> None:
    counts = {
        table: load(spark, store, table=table).count()
        for table in ("consumequeue", "index", "consumeroffsets", "topics", "delayoffsets",
                      "checkpoint")
    }  # fmt: skip
    assert counts["consumeroffsets"] == 3
    assert counts["checkpoint"] == counts["delayoffsets"] == 1
    assert counts["topics"] == 3
    joined = load(spark, store, table="consumequeue").join(load(spark, store), "commitLogOffset")
    assert joined.count() == counts["consumequeue"] > 249
    (row,) = load(spark, store, table="checkpoint").collect()
    assert row.abort is False


def test_a_damaged_store_fails_with_file_and_position_or_has_corrupt_rows(
    spark, disk, tmp_path
) -> None:
    damaged = stopped_store()
    starts = [m.physical_offset for m in records(disk)]
    poke(damaged, starts[30], b"\0\0\0\x05")
    path = lay_out(damaged, tmp_path)
    with pytest.raises(Exception, match=f"bytes at {starts[30]} are not records.*mode=permissive"):
        load(spark, path).collect()
    found = load(spark, path, mode="permissive", splitBytes="5000")
    assert found.where("valid").count() == len(starts) - 1
    (hole,) = found.where("NOT valid").collect()
    assert (hole.position, hole.size) == (starts[30], starts[31] - starts[30])
    assert bytes(hole._raw)[:4] == b"\0\0\0\x05"


@pytest.mark.parametrize(
    ("path", "options", "text"),
    [
        ("/nowhere/at/all", {}, "there is no folder /nowhere/at/all"),
        (
            "{store}",
            {"splitbites": "3"},
            "no option 'splitbites'; did you mean splitBytes",
        ),
        ("{store}", {"table": "topic"}, "no table 'topic'; did you mean topics"),
    ],
)
def test_what_cannot_be_right_says_so_before_anything_runs(
    spark, store, path, options, text
) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011
        load(spark, path.format(store=store), **options).collect()
    assert text in str(caught.value)


def test_a_store_of_apache_has_what_its_manifest_says(spark, golden, tmp_path) -> None:
    root = unpack(golden, "5.5.0-mix", tmp_path)
    found = {
        row.commitLogOffset: row
        for row in load(spark, str(root)).select("commitLogOffset", "topic", "tags").collect()
    }
    for line in manifest(golden, "5.5.0-mix")["message"]:
        row = found[line["physicalOffset"]]
        assert (row.topic, row.tags) == (line["topic"], line.get("tags"))
