"""Ours and Apache's own classes on the same values: Hypothesis's, and those of the jobs."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from trocket.common.clock import SystemClock
from trocket.interop import oracle_checks as checks
from trocket.interop.oracle import Oracle, RefusedError
from trocket.interop.oracle_jobs import OPERATIONS, Operation, jobs
from trocket.interop.process import PeerError
from trocket.interop.report.cells import Cell, Verdict
from trocket.interop.sql92_expressions import Expressions
from trocket.remoting.bodies import MessageQueue
from trocket.remoting.codec import NO_EXT_FIELDS, RemotingCommand
from trocket.remoting.message import Message
from trocket.remoting.signature import Credentials

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("java")]

VERSIONS = ("5.5.0", pytest.param("4.9.7", marks=pytest.mark.matrix))
examples = settings(max_examples=40)
"""Enough for a daily run; `pytest --hypothesis-seed N` repeats one, which prints its seed."""


@pytest.fixture(scope="module", params=VERSIONS)
def oracle(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Oracle]:
    folder: Path = tmp_path_factory.mktemp(f"oracle-{request.param}")
    with Oracle(request.param, folder) as made:
        yield made


int16 = st.integers(-(2**15), 2**15 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
offset = st.integers(0, 2**63 - 1)
texts = st.text(max_size=60)
ips = st.ip_addresses().filter(
    # Java makes an IPv4 address of such a one.
    lambda ip: ip.version == 4 or ip.ipv4_mapped is None
)
hosts = st.tuples(ips.map(str), st.integers(0, 65535))
bodies = st.binary(max_size=300)
values = st.text(st.characters(codec="utf-8", exclude_characters="\x02"), min_size=1, max_size=60)
properties = st.dictionaries(
    st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1, max_size=20),
    values,
    max_size=5,
)


def fields(last_character: int) -> st.SearchStrategy[Mapping[str, str]]:
    names = st.text(
        st.characters(codec="utf-8", max_codepoint=last_character), min_size=1, max_size=20
    )
    # fastjson takes these for its own words.
    plain = names.filter(lambda name: name not in ("$ref", "@type"))
    return st.dictionaries(plain, texts, max_size=6).map(lambda made: made or NO_EXT_FIELDS)


commands = st.builds(
    RemotingCommand,
    code=int16,
    body=bodies,
    remark=st.none() | texts,
    opaque=int32,
    flag=st.integers(0, 3),
    language=st.integers(0, 9),
    version=int16,
)


# With an escape beside a character of four bytes in a name, 5.5.0 cannot read what it wrote.
@examples
@given(command=commands, ext_fields=fields(0xFFFF))
def test_frames_with_a_json_header(
    oracle: Oracle, command: RemotingCommand, ext_fields: Mapping[str, str]
) -> None:
    command.ext_fields = ext_fields
    assert checks.check_frame(oracle, command) == ""


@examples
@given(command=commands, ext_fields=fields(0x10FFFF))
def test_frames_with_a_binary_header(
    oracle: Oracle, command: RemotingCommand, ext_fields: Mapping[str, str]
) -> None:
    command.ext_fields = ext_fields
    command.serialize_type = 1
    assert checks.check_frame(oracle, command) == ""


@examples
@given(
    st.builds(
        checks.Record,
        topic=st.text(min_size=1, max_size=31),
        queue_id=int32,
        queue_offset=int64,
        physical_offset=offset,
        body=bodies,
        properties=properties,
        born_timestamp_ms=int64,
        born_host=hosts,
        store_timestamp_ms=int64,
        store_host=hosts,
        flag=int32,
        sys_flag=st.sampled_from([0, 2, 4, 8, 12, 0x100, 0x300]),
        reconsume_times=int32,
        prepared_offset=int64,
    )
)
def test_records(oracle: Oracle, record: checks.Record) -> None:
    assert checks.check_record(oracle, record) == ""


@examples
@given(
    st.lists(st.builds(Message, st.just("T"), bodies, int32, properties), min_size=1, max_size=6)
)
def test_batches(oracle: Oracle, messages: list[Message]) -> None:
    assert checks.check_batch(oracle, messages) == ""


@examples
@given(properties)
def test_text_of_properties(oracle: Oracle, properties: dict[str, str]) -> None:
    assert checks.check_properties(oracle, properties) == ""


@examples
@given(st.lists(st.sampled_from(["\x01", "\x02"]) | texts, max_size=12).map("".join))
def test_properties_in_any_text(oracle: Oracle, text: str) -> None:
    assert checks.check_properties_text(oracle, text) == ""


@settings(max_examples=100)
@given(st.integers(0, 2**32))
def test_sql92_filters(oracle: Oracle, seed: int) -> None:
    made = Expressions(seed)
    assert checks.check_sql(oracle, (made.expression(), made.properties())) == ""


@examples
@given(st.tuples(st.integers(1, 99), st.integers(1, 2000), texts))
def test_bloom_filters(oracle: Oracle, of: tuple[int, int, str]) -> None:
    assert checks.check_bloom(oracle, of) == ""


@settings(max_examples=100)
@given(st.text(st.characters(), max_size=200))
def test_hash_codes(oracle: Oracle, text: str) -> None:
    """Of halves of surrogate pairs too."""
    assert checks.check_hash_codes(oracle, text) == ""


@examples
@given(st.tuples(ips.map(str), st.integers(0, 65535), offset))
def test_offset_message_ids(oracle: Oracle, place: tuple[str, int, int]) -> None:
    assert checks.check_offset_id(oracle, place) == ""


@examples
@given(ips, st.integers(0, 2**16 - 1), st.integers(0, 2**32 - 1))
def test_unique_message_ids(oracle: Oracle, ip, pid: int, loader_hash: int) -> None:
    source = checks.UniqueIdSource(ip.packed, pid, loader_hash, SystemClock().wall_ms())
    assert checks.check_unique_id(oracle, source) == ""


rooms = st.sampled_from(["r1", "r2", "r3"])
brokers = st.builds(lambda room, name: f"{room}@{name}", rooms, st.sampled_from("abc")) | (
    st.sampled_from(["b", "r1@", "@b", "r1@b@c", "r1@b@"])
)
queues = st.lists(
    st.builds(MessageQueue, st.sampled_from("TU"), brokers, st.integers(0, 5)),
    max_size=15,
    unique=True,
).map(lambda made: tuple(sorted(made)))
clients = st.builds(lambda room, name: f"{room}@{name}", rooms, st.sampled_from("12345"))


@settings(max_examples=80)
@given(
    st.builds(
        checks.AllocationCase,
        strategy=st.sampled_from(
            ["AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH", "CONFIG", "MACHINE_ROOM"]
            + [f"MACHINE_ROOM_NEARBY-{inner}" for inner in ("AVG", "AVG_BY_CIRCLE")]
        ),
        client_id=clients | st.just(""),
        queues=queues,
        client_ids=st.lists(clients, max_size=6).map(lambda made: tuple(sorted(made))),
        rooms=st.frozensets(rooms),
        configured=queues,
        nodes=st.integers(0, 20),
    )
)
def test_queue_allocation(oracle: Oracle, case: checks.AllocationCase) -> None:
    assert checks.check_allocation(oracle, case) == ""


keys = st.text(min_size=1, max_size=20)


@examples
@given(
    st.builds(Credentials, keys, keys, st.none() | keys),
    st.dictionaries(texts, texts, max_size=6),
    bodies,
)
def test_acl_signatures(
    oracle: Oracle, credentials: Credentials, fields: dict[str, str], body: bytes
) -> None:
    assume("Signature" not in fields)
    assert checks.check_signature(oracle, (credentials, fields, body)) == ""


# ---- the oracle itself ---------------------------------------------------------------------------


def test_what_apaches_class_refuses_is_reported(oracle: Oracle) -> None:
    with pytest.raises(RefusedError, match=r"nonsense in .*: IllegalArgumentException: no operat"):
        oracle.ask("nonsense")
    refused, fine = oracle.ask_all([("frame_decode", {"hex": "00"}), ("hash_code", {"text": "Aa"})])
    assert (refused.value, fine.value, fine.error) == (None, 2112, "")
    assert refused.error != ""


def test_a_jvm_that_is_gone_is_reported(tmp_path: Path) -> None:
    with Oracle("5.5.0", tmp_path) as oracle:
        assert oracle.ask("hash_code", text="BB") == 2112
        os.kill(oracle.pid, signal.SIGKILL)
        with pytest.raises(PeerError, match=r"oracle-5\.5\.0"):
            oracle.ask("hash_code", text="BB")


def test_a_difference_is_a_failed_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every cell of a job, with our hash code made wrong."""
    monkeypatch.setattr(checks, "java_hash_code", len)
    few = [
        Operation(each.feature, each.make, each.check, min(each.count, 10)) for each in OPERATIONS
    ]
    monkeypatch.setattr("trocket.interop.oracle_jobs.OPERATIONS", few)
    (job,) = jobs(["5.5.0"], seed=7)
    assert len(job.owed) == len(OPERATIONS)
    reported: list[Cell] = []
    job.play(job.owed, tmp_path, reported.append)
    assert [cell.feature for cell in reported] == [each.feature for each in OPERATIONS]
    (wrong,) = [cell for cell in reported if cell.verdict is not Verdict.PASSED]
    assert wrong.name == "oracle/hash codes/oracle/apache-5.5.0/none"
    assert wrong.verdict is Verdict.FAILED
    assert "hash code: ours" in wrong.detail
    assert "of seed 7)" in wrong.detail
