"""An archive of generated messages: each once, over runs that broke off; and faults are found."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark is of the extra `spark`")

from trocket.blocking import Message, Producer
from trocket.spark.jobs import archive_compaction, archive_parquet, archive_verify
from trocket.spark.jobs.archive_checks import Ends, Held, findings, without
from trocket.spark.jobs.archive_flags import ArchiveFlags
from trocket.spark.jobs.archive_manifest import Manifest, read_manifest
from trocket.spark.jobs.archive_parquet import Archive, main, start
from trocket.spark.jobs.demo.archive_parquet import fill
from trocket.spark.jobs.files import Files
from trocket.spark.jobs.running import JobError
from trocket.spark.queue_offsets import Queue, QueueRange, StreamOffset
from trocket.testing import Broker

pytestmark = pytest.mark.slow

COUNT = 600
KILLS = int(os.environ.get("TROCKET_ARCHIVE_KILLS", "0"))
"""How often a run is killed by the test that does it: each costs the start of a session."""

Q0, Q1 = Queue("T", "a", 0), Queue("T", "a", 1)


# ---- the manifest and the comparison, without Spark --------------------------------------


def test_the_manifest_follows_the_batches_and_knows_what_was_lost() -> None:
    one = Manifest().after("q-0", StreamOffset({Q0: 10, Q1: 5}, init={Q0: 3, Q1: 0}))
    assert one.first == {Q0: 3, Q1: 0}
    two = one.after("q-1", StreamOffset({Q0: 30, Q1: 5}, init={Q0: 20}))
    assert two.next == {Q0: 30, Q1: 5}
    assert two.lost == (QueueRange(Q0, 10, 20),)
    assert two.after("q-1", StreamOffset({Q0: 30, Q1: 5}, init={Q0: 20})) is two
    assert read_manifest(two.to_text(), "m") == two


@pytest.mark.parametrize(
    "text",
    ["no JSON", "[]", "{}", '{"version":7}',
     '{"version":1,"batch":"","first":{},"next":{},"lost":[1]}'],
)  # fmt: skip
def test_what_is_no_manifest_is_refused_with_its_path(text) -> None:
    with pytest.raises(JobError, match=r"/a/_manifest\.json"):
        read_manifest(text, "/a/_manifest.json")


def test_ranges_less_what_is_known() -> None:
    known = [QueueRange(Q0, 3, 5), QueueRange(Q0, 8, 20)]
    assert without([(0, 10), (30, 31), (4, 4)], known) == [(0, 3), (5, 8), (30, 31)]


@pytest.mark.parametrize(
    ("held", "end", "expected"),
    [
        (Held(10, 0, 10), Ends(0, 12), []),
        (Held(7, 1, 10, gaps=((4, 6),)), Ends(5, 10),
         [("gap", 0, 1), ("gap", 4, 6)]),
        (Held(8, 0, 8), Ends(0, 10), [("gap", 8, 10)]),
        (None, Ends(0, 10), [("gap", 0, 10)]),
        (Held(12, 0, 10, repeated=((3, 5),)), Ends(0, 10), [("duplicate", 3, 5)]),
        (Held(13, 0, 13), Ends(0, 13), [("unlisted", 10, 13)]),
        (Held(10, 0, 10), Ends(15, 20), [("expired", 10, 15)]),
        (Held(10, 0, 10), Ends(0, 4), [("ahead", 4, 10)]),
        (Held(10, 0, 10), None, []),
    ],
)  # fmt: skip
def test_each_fault_of_a_queue_is_a_finding(held, end, expected) -> None:
    manifest = Manifest("q-0", {Q0: 0}, {Q0: 10})
    rows = {} if held is None else {Q0: held}
    found = findings(manifest, rows, {} if end is None else {Q0: end})
    assert [(each.kind, each.start, each.end) for each in found] == expected


def test_a_gap_that_the_manifest_explains_is_none() -> None:
    manifest = Manifest("q-0", {Q0: 0}, {Q0: 10}, (QueueRange(Q0, 4, 6),))
    assert findings(manifest, {Q0: Held(8, 0, 10, gaps=((4, 6),))}, None) == []


# ---- runs --------------------------------------------------------------------------------


class Place:
    """A broker with a demo's data, and an archive of it."""

    def __init__(self, broker, out) -> None:
        self.broker = broker
        self.out = out

    def main(self, *flags, topic="TopicOrder,TopicPayment") -> int:
        """A run, or with --verify a check."""
        name = ["--topic", topic] if topic else []
        given = ["--name-server", self.broker.namesrv_address, "--out", str(self.out)]
        return main([*given, *name, "--quiet", "--json", *flags])

    def verify(self, capsys, *flags) -> dict:
        """What a check says."""
        capsys.readouterr()
        status = self.main("--verify", *flags, topic="")
        found = json.loads(capsys.readouterr().out)
        assert found["status"] == status == (1 if found["counts"] else 0)
        return found

    def kinds(self, capsys, *flags) -> list:
        """The findings of a check."""
        found = self.verify(capsys, *flags)["findings"]
        return [(each["kind"], each["queueId"], each["start"], each["end"]) for each in found]

    def rows(self, spark) -> list:
        """All that is archived, as another reader of Parquet sees it."""
        return spark.read.parquet(str(self.out)).collect()


@pytest.fixture
def place(spark, tmp_path):
    with Broker() as broker:
        yield Place(broker, tmp_path / "archive")


def send(place, numbers, topic="TopicOrder") -> None:
    with Producer(place.broker.url, group="p") as producer:
        producer.send_batch([Message(topic, str(number)) for number in numbers])


def test_runs_archive_each_message_once_by_the_time_it_was_stored(place, spark, capsys) -> None:
    answers = fill(place.broker.namesrv_address, COUNT, seed=3)
    assert place.main("--max-offsets-per-trigger", "400") == 0
    assert place.main() == 0  # nothing new
    place.broker.advance(hours=2)
    send(place, range(50))
    assert place.main() == 0

    rows = place.rows(spark)
    sent = [message for topic in answers["topics"] for message in place.broker.messages(topic)]
    assert len(rows) == len(sent) == COUNT + 50
    texts = {(row.topic, row.queueId, row.queueOffset): bytes(row.body) for row in rows}
    assert texts == {
        (each.topic, each.queue_id, each.queue_offset): each.body for each in sent
    }  # fmt: skip
    for row in rows:
        stored = row.storeTimestamp
        assert (str(row.date), int(row.hour)) == (f"{stored:%Y-%m-%d}", stored.hour)
    assert len({(row.date, row.hour) for row in rows}) >= 2
    manifest = json.loads((place.out / "_manifest.json").read_text())
    counts = [end for brokers in manifest["next"].values() for ends in brokers.values()
              for end in ends.values()]  # fmt: skip
    assert sum(counts) == COUNT + 50
    assert len(counts) == 5
    assert place.kinds(capsys) == []

    send(place, range(7))
    found = place.verify(capsys, "--topic", "TopicOrder")
    assert found["messages to be archived"] == 7
    assert found["topics"] == 1


@pytest.mark.matrix
def test_a_batch_that_broke_off_is_replaced_and_not_added(
    place, spark, capsys, monkeypatch
) -> None:
    fill(place.broker.namesrv_address, COUNT, seed=4)
    write = archive_parquet.Archive.write_manifest

    def broken(self, manifest) -> None:
        if manifest.batch.endswith("1"):
            raise OSError("out of luck")
        write(self, manifest)

    with monkeypatch.context() as patch:
        patch.setattr(archive_parquet.Archive, "write_manifest", broken)
        assert place.main("--max-offsets-per-trigger", "300") == 2
    assert "out of luck" in capsys.readouterr().err
    # Its rows are there already, and the manifest does not know them.
    assert {kind for kind, *_ in place.kinds(capsys)} == {"unlisted"}
    (place.out / ".spark-staging-left").mkdir()
    assert place.main() == 0
    assert not (place.out / ".spark-staging-left").exists()
    assert len(place.rows(spark)) == COUNT
    # The checkpoint is lost: the manifest says where to go on.
    shutil.rmtree(place.out / "_checkpoint")
    send(place, range(9))
    assert place.main() == 0
    assert len(place.rows(spark)) == COUNT + 9
    assert place.kinds(capsys) == []


@pytest.mark.matrix
def test_faults_are_found_and_the_manifest_can_be_made_anew(place, spark, capsys) -> None:
    place.broker.create_topic("TopicOrder", queues=1)
    send(place, range(40))
    assert place.main("--max-offsets-per-trigger", "10", topic="TopicOrder") == 0
    batches = sorted(place.out.rglob("batch=*"))
    assert len(batches) == 4
    shutil.rmtree(batches[1])
    shutil.copytree(batches[2], batches[2].with_name("batch=copy"))
    assert place.kinds(capsys) == [("duplicate", 0, 20, 30), ("gap", 0, 10, 20)]
    assert place.kinds(capsys, "--offline", "--findings", "0") == []
    (place.out / "_manifest.json").write_text("no JSON")
    assert place.main(topic="TopicOrder") == 2
    assert "_manifest.json is not a manifest" in capsys.readouterr().err
    (place.out / "_manifest.json").unlink()
    assert place.main(topic="TopicOrder") == 2
    assert "--rebuild-manifest" in capsys.readouterr().err
    assert place.main("--rebuild-manifest", topic="TopicOrder") == 0
    assert place.kinds(capsys) == [("duplicate", 0, 20, 30), ("gap", 0, 10, 20)]


def test_a_recreated_topic_stops_a_run_unless_losses_are_allowed(place, spark, capsys) -> None:
    place.broker.create_topic("TopicOrder", queues=1)
    send(place, range(10))
    assert place.main(topic="TopicOrder") == 0
    # The topic is made anew: the archive is ahead of it.
    place.broker.delete_topic("TopicOrder")
    place.broker.create_topic("TopicOrder", queues=1)
    assert place.kinds(capsys) == [("ahead", 0, 0, 10)]
    assert place.main(topic="TopicOrder") == 2
    assert "the topic was recreated" in capsys.readouterr().err
    send(place, range(4))
    assert place.main("--allow-loss", topic="TopicOrder") == 0
    assert place.kinds(capsys) == [("duplicate", 0, 0, 4), ("unlisted", 0, 4, 10)]


def test_without_an_end_it_archives_what_comes(place, spark) -> None:
    place.broker.create_topic("TopicOrder", queues=1)
    given = ArchiveFlags(
        name_server=place.broker.namesrv_address,
        out=str(place.out),
        topic="TopicOrder",
        continuous="0 seconds",
    )
    query = start(spark, Archive(spark, given.out), given)
    try:
        for number in range(2):
            send(place, [number])
            query.processAllAvailable()
            assert len(place.rows(spark)) == number + 1
    finally:
        query.stop()


@pytest.mark.matrix
def test_compaction_keeps_every_row_and_is_completed_when_it_broke_off(
    place, spark, capsys, monkeypatch
) -> None:
    topic = "%DLQ%g"  # its folder's name is not the same
    place.broker.create_topic(topic, queues=2)
    for hour in range(2):
        send(place, range(hour * 20, hour * 20 + 20), topic)
        assert place.main("--max-offsets-per-trigger", "10", topic=topic) == 0
        place.broker.advance(hours=1)
    assert len(list(place.out.rglob("batch=*"))) == 4

    with monkeypatch.context() as patch:
        patch.setattr(Files, "move", lambda *_: (_ for _ in ()).throw(JobError("no more")))
        assert place.main("--compact", "0", topic=topic) == 2
    capsys.readouterr()
    assert place.main("--verify", topic="") == 2
    assert "run once without --verify" in capsys.readouterr().err
    assert place.main("--compact", "0", topic=topic) == 0
    assert len(list(place.out.rglob("batch=*"))) == 3  # but of the newest hour
    assert not (place.out / archive_compaction.JOURNAL).exists()
    assert sorted(int(bytes(row.body)) for row in place.rows(spark)) == list(range(40))
    assert place.kinds(capsys) == []


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--topic", "Nosuch"], "knows the topic Nosuch"),
        (["--verify"], "is not an archive"),
        (["--topic", "TopicOrder", "--starting-offsets", "now"], "startingOffsets must be"),
        (["--topic", "T", "--name-server", "127.0.0.1:1"], "127.0.0.1:1"),
    ],
    ids=str,
)
def test_what_cannot_be_done_is_one_line_and_status_2(place, capsys, flags, text) -> None:
    given = ["--name-server", place.broker.namesrv_address, "--out", str(place.out), *flags]
    place.broker.create_topic("TopicOrder", queues=1)
    assert main([*given, "--quiet"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert text in lines[-1]
    assert lines[-1].startswith("archive_parquet: ")


def test_an_archive_of_another_topic_is_refused(place, capsys) -> None:
    for topic in ("TopicOrder", "Other"):
        place.broker.create_topic(topic, queues=1)
    send(place, range(3))
    assert place.main(topic="TopicOrder") == 0
    assert place.main(topic="Other") == 2
    assert "is an archive of TopicOrder, not of Other" in capsys.readouterr().err
    assert place.main("--verify", topic="Other") == 2
    assert "the archive has no topic Other" in capsys.readouterr().err
    assert place.main("--verify", "--topic-pattern", "P.*", topic="") == 2
    assert "has no topic that P.* matches" in capsys.readouterr().err
    assert place.main("--topic-pattern", "Topic.*", topic="") == 0


@pytest.mark.parametrize("flags", [[], ["--topic", "a", "--topic-pattern", "b"],
                                   ["--topic-pattern", "("]])  # fmt: skip
def test_wrong_use_is_status_2(flags, capsys) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--name-server", "x", "--out", "y", *flags])
    assert caught.value.code == 2
    assert "--topic-pattern" in " ".join(capsys.readouterr().err.replace("│", " ").split())


@pytest.mark.skipif(not KILLS, reason="TROCKET_ARCHIVE_KILLS is how often")
def test_runs_that_are_killed_archive_each_message_once(place, spark, capsys) -> None:
    fill(place.broker.namesrv_address, 5000, seed=6)
    program = [sys.executable, archive_parquet.__file__, "--name-server",
               place.broker.namesrv_address, "--topic", "TopicOrder,TopicPayment", "--out",
               str(place.out), "--max-offsets-per-trigger", "100", "--compact", "0"]  # fmt: skip
    rng = random.Random(KILLS)
    for _ in range(KILLS):
        with subprocess.Popen(program, start_new_session=True, stderr=subprocess.DEVNULL) as run:
            newest = Path(place.out, "_manifest.json")
            before = newest.read_text() if newest.exists() else ""
            while run.poll() is None and (not newest.exists() or newest.read_text() == before):
                threading.Event().wait(0.05)
            threading.Event().wait(rng.random() * 3)
            if run.poll() is None:
                os.killpg(run.pid, signal.SIGKILL)
    assert place.main() == 0
    assert len(place.rows(spark)) == 5000
    assert place.kinds(capsys) == []


def test_a_topic_that_was_deleted_has_no_ends_at_brokers(monkeypatch) -> None:
    class Cluster:
        def __init__(self, options):
            pass

        def topics(self):
            return ["Kept", "Other"]

        def queues(self, options):
            return [Queue(topic, "b", 0) for topic in options.topic_names]

        def min_offset(self, queue):
            return 3

        def max_offset(self, queue):
            return 7

    monkeypatch.setattr(archive_verify, "Cluster", Cluster)
    given = ArchiveFlags(name_server="n:1", out="x", topic="Kept")
    ends = archive_verify.queue_ends(given, ["Deleted", "Kept"])
    assert ends == {Queue("Kept", "b", 0): Ends(3, 7)}
    assert archive_verify.queue_ends(given, ["Deleted"]) == {}
