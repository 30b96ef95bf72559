"""The store's benchmark: its loops on small stores, its table, its pull load on a tiny socket."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading

import pytest

from trocket.bench.frames import BadAnswerError, pull_fields
from trocket.bench.kit import table
from trocket.bench.load import Load, Tally
from trocket.bench.pulls import Pulls
from trocket.bench.store import (
    BATCH,
    COLUMNS,
    SENDERS,
    Figure,
    append,
    bare_fsync_rate,
    filter_case,
    group_commit_case,
    new_store,
    recovery_case,
)


def test_appends_go_to_the_queues_in_turn(tmp_path):
    store = new_store(tmp_path / "store", mapped_file_size_commit_log=1 << 20)
    rate = append(store, bytes(128), 3, [("A", 0), ("A", 1), ("B", 0)])
    assert rate > 0
    ends = [store.max_offset("A", 0), store.max_offset("A", 1), store.max_offset("B", 0)]
    assert sum(ends) == 3 * BATCH
    assert max(ends) - min(ends) <= 1
    store.close()


@pytest.mark.parametrize("written", [False, True])
def test_the_bare_rate_counts_fsyncs_and_leaves_nothing(tmp_path, written):
    assert bare_fsync_rate(tmp_path, 4096, 0.01, written=written, room=1 << 20) > 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_group_commit_is_compared_with_the_bare_rate_of_the_same_run(tmp_path):
    outcome = group_commit_case(tmp_path / "store", 128, 0.1, rounds=1)
    assert outcome.value > SENDERS
    assert outcome.ratio is not None
    assert outcome.ratio > 0


@pytest.mark.slow
def test_recovery_reads_the_whole_log_again(tmp_path):
    outcome = recovery_case(tmp_path / "store", 0.002)
    assert "NOT ALL" not in outcome.note
    assert outcome.value > 0


@pytest.mark.slow
def test_filtered_gets_find_a_quarter_of_the_messages(tmp_path):
    outcome = filter_case(tmp_path / "store")
    assert outcome.note.endswith("3200 of 12,800 match")
    assert outcome.value > 0


def test_the_table_has_a_row_for_each_figure():
    outcomes = [Figure("a", 1.0, "s", "b", 0.5), Figure("c", 1.0, "s", "d", None)]
    assert table(COLUMNS, outcomes).row_count == 2


def test_a_pull_asks_for_its_queue_and_offset_and_is_not_held():
    fields = pull_fields("group", "topic", 3, 64)
    assert (fields["queueId"], fields["queueOffset"], fields["maxMsgNums"]) == ("3", "64", "32")
    assert not int(fields["sysFlag"]) & 2


@pytest.mark.parametrize(("code", "size"), [(0, 500), (19, 500), (0, 10)])
def test_every_answer_to_a_pull_is_checked(code, size):
    answer = struct.pack(">iih", size, 0, code) + bytes(size - 6)

    def serve():
        theirs, _ = server.accept()
        with theirs, contextlib.suppress(BrokenPipeError, ConnectionResetError):
            while theirs.recv(100):
                theirs.sendall(answer)

    tally = Tally()
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        driver = Pulls([b"pull"], 400, 1, tally)
        with Load("pulls", [server.getsockname()], [driver], tally) as load:
            if code or size < 400:
                with pytest.raises(BadAnswerError, match=f"code {code}, {size} bytes"):
                    load.run(0.05)
            else:
                assert load.run(0.05) > 0
        thread.join()
