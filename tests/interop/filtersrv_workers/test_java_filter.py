"""Uploaded Java: compiled, loaded, asked."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import trio
import trio.testing

from tests.filtersrv.messages import message
from tests.filtersrv.workers.uploads import (
    CLASS_NAME,
    GOOD,
    JAVA,
    PATIENT,
    compiled,
    java_source,
    pid_of,
    processes_of,
    tagged,
)
from trocket.filtersrv.filters import FilterCompileError, FilterError
from trocket.filtersrv.workers import WorkerFilter, WorkerLimits
from trocket.filtersrv.workers.java import CACHE_VARIABLE, find_jdk, our_classes
from trocket.remoting.message import MessageExt

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("java")]

KEEP_FIFTH = """
package trocket.check;

import org.apache.rocketmq.common.filter.FilterContext;
import org.apache.rocketmq.common.filter.MessageFilter;
import org.apache.rocketmq.common.message.MessageExt;

public class KeepFifth implements MessageFilter {
    @Override
    public boolean match(MessageExt msg, FilterContext context) {
        String number = msg.getProperty("number");
        return number != null && Integer.parseInt(number) % 5 == 0;
    }
}
"""
"""As people write them for RocketMQ 4.2: `org.apache.rocketmq.example.filter.MessageFilterImpl`."""


async def test_a_class_as_official_clients_upload_it_decides_about_each_message() -> None:
    messages = [message(properties={"number": str(index)}) for index in range(64)]
    async with compiled(JAVA, KEEP_FIFTH, class_name="trocket.check.KeepFifth") as worker:
        assert list(await worker.match(messages, "g")) == [not index % 5 for index in range(64)]
        assert list(await worker.match([message()], "g")) == [False]


def seen_by_java(sent: MessageExt) -> dict[str, object]:
    """What the getters are to say."""
    return {
        "getTopic()": sent.topic,
        "getTags()": sent.tags,
        "getKeys()": sent.keys,
        'getProperty("n")': sent.properties.get("n"),
        'getUserProperty("none")': None,
        "getProperties().size()": len(sent.properties),
        "getFlag()": sent.flag,
        "getQueueId()": sent.queue_id,
        "getQueueOffset()": sent.queue_offset,
        "getCommitLogOffset()": sent.physical_offset,
        "getSysFlag()": sent.sys_flag,
        "getBornTimestamp()": sent.born_timestamp_ms,
        "getBornHost()": f"/{sent.born_host_text}",
        "getBornHostString()": sent.born_host_text.rpartition(":")[0],
        "getBornHostNameString()": sent.born_host_text.rpartition(":")[0],
        "getStoreTimestamp()": sent.store_timestamp_ms,
        "getStoreHost()": f"/{sent.store_host_text}",
        "getMsgId()": sent.unique_key or sent.offset_message_id,
        "getReconsumeTimes()": sent.reconsume_times,
        "getPreparedTransactionOffset()": sent.prepared_transaction_offset,
        "getStoreSize()": sent.store_size,
        "getBodyCRC()": sent.body_crc,
        "getDelayTimeLevel()": 3,
        "isWaitStoreMsgOK()": "false",
        "getBuyerId()": None,
        "getBody().length": len(sent.body),
        "getBody()[1]": sent.body[1],
    }


@pytest.mark.parametrize("unique_key", [None, "7F000001"])
async def test_the_getters_say_what_the_message_holds(unique_key: str | None) -> None:
    properties = {"TAGS": "t", "KEYS": "a b", "n": "ä=ö", "DELAY": "3", "WAIT": "false"}
    if unique_key:
        properties["UNIQ_KEY"] = unique_key
    sent = message(b"b\x7fdy", properties=properties, offset=1 << 40, sys_flag=8)
    wanted = seen_by_java(sent)
    body = "throw new IllegalStateException(" + ' + "|" + '.join(f"msg.{get}" for get in wanted)
    body += ' + "|" + context.getConsumerGroup());'
    async with compiled(JAVA, java_source(body)) as worker:
        with pytest.raises(FilterError) as caught:
            await worker.match([sent], "gröup")
    said = str(caught.value).partition("IllegalStateException: ")[2].rpartition(" (line")[0]
    values = ["null" if value is None else str(value) for value in wanted.values()]
    assert dict(zip(wanted, said.split("|"), strict=False)) == dict(
        zip(wanted, values, strict=True)
    )
    assert said.endswith("|gröup")


async def test_a_message_can_be_written_as_text_and_constants_are_there() -> None:
    imports = "import org.apache.rocketmq.common.message.*;"
    body = "Message m = msg; return m.toString().contains(MessageConst.PROPERTY_TAGS + '=');"
    async with compiled(JAVA, java_source(body, imports=imports)) as worker:
        assert list(await worker.match(tagged("x"), "g")) == [True]


async def test_inner_classes_lambdas_and_the_library_are_there() -> None:
    before = "private final Test test = new Test(); static class Test { boolean is(int n) "
    before += "{ return n % 2 == 1; } }"
    imports = "import java.util.*; import java.util.regex.*; import java.util.stream.*;"
    body = 'return Stream.of(1, 2, 3).filter(test::is).count() == 2 && Pattern.matches("a+", "aa")'
    body += '&& java.time.Instant.ofEpochMilli(msg.getBornTimestamp()).toString().startsWith("2");'
    async with compiled(JAVA, java_source(body, before, imports)) as worker:
        assert list(await worker.match(tagged("x"), "g")) == [True]


async def test_an_address_of_ipv6_is_understood() -> None:
    body = 'return msg.getStoreHost().toString().contains("2001:db8:") && msg.getBody()[0] == 66;'
    async with compiled(JAVA, java_source(body)) as worker:
        sent = message(b"B", host="2001:db8::1", sys_flag=0x30)
        assert list(await worker.match([sent], "g")) == [True]


async def test_a_large_message_passes_whole() -> None:
    async with compiled(JAVA, java_source("return msg.getBody().length == 16 << 20;")) as worker:
        large = message(b"")
        large.body = bytes(PATIENT.message_bytes_max)
        assert list(await worker.match([large, large, large], "g")) == [True] * 3


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (
            java_source("return 5;"),
            r"^line \d+: incompatible types: int cannot be converted to bool",
        ),
        ("package com.example; public class Wanted {", r"^line 1: reached end of file"),
        ("", "does not define com.example.Wanted, but"),
        ("class Wanted {}", "does not define com.example.Wanted, but .*Wanted"),
        ("package com.example; public class Wanted {}", "does not implement org.apache.rocketmq"),
        (KEEP_FIFTH, "KeepFifth is public, should be declared in a file named KeepFifth.java"),
        (
            java_source("return true;", "private Wanted() {}"),
            "is not public, or has no public constructor",
        ),
        (
            java_source("return true;", 'public Wanted() { throw new RuntimeException("no"); }'),
            r"java.lang.RuntimeException: no \(line 10\)",
        ),
        (
            java_source("return true;", "static { System.exit(3); }"),
            "its process ended with status 3",
        ),
        (
            java_source("return true;", imports="import org.apache.commons.lang3.StringUtils;"),
            "package org.apache.commons.lang3 does not exist",
        ),
    ],
)
async def test_what_is_no_filter_is_refused_and_leaves_no_process(source: str, text: str) -> None:
    worker = WorkerFilter(JAVA, CLASS_NAME, source.encode(), PATIENT)
    error = FilterError if "status" in text else FilterCompileError
    with pytest.raises(error, match=text):
        await worker.compile()
    assert worker._process is None or worker._process.ended


async def test_annotation_processors_of_the_source_are_not_run() -> None:
    processor = """
@javax.annotation.processing.SupportedAnnotationTypes("*")
class Evil extends javax.annotation.processing.AbstractProcessor {
    static { System.exit(9); }
    public boolean process(java.util.Set<? extends javax.lang.model.element.TypeElement> types,
        javax.annotation.processing.RoundEnvironment round) { System.exit(9); return true; }
}
"""
    async with compiled(JAVA, java_source("return true;") + processor) as worker:
        assert list(await worker.match(tagged("x"), "g")) == [True]


async def test_a_compiler_that_does_not_come_to_an_end_is_given_up() -> None:
    await our_classes(find_jdk())
    limits = WorkerLimits(compile_timeout_s=0.05)  # no compiler has started by then
    worker = WorkerFilter(JAVA, CLASS_NAME, java_source("return true;").encode(), limits)
    before = children_named("java")  # those of other tests' clusters
    with pytest.raises(
        FilterError, match=r"took more than 50 ms for (the start|loading the class)"
    ):
        await worker.compile()
    assert worker._process is None
    assert children_named("java") == before


async def test_a_source_that_is_too_deep_for_the_compiler_is_refused() -> None:
    deep = "(" * 20_000 + "true" + ")" * 20_000
    worker = WorkerFilter(JAVA, CLASS_NAME, java_source(f"return {deep};").encode(), PATIENT)
    with pytest.raises(FilterCompileError, match="StackOverflowError"):
        await worker.compile()
    assert worker._process is None


async def test_a_source_that_fills_the_compilers_memory_ends_it() -> None:
    text = 'static final String A0 = "0123456789";'
    for index in range(1, 30):
        text += f"static final String A{index} = A{index - 1} + A{index - 1};"
    source = java_source("return A29.isEmpty();", text)
    worker = WorkerFilter(JAVA, CLASS_NAME, source.encode(), PATIENT)
    with pytest.raises(FilterError, match=r"OutOfMemoryError|constant string too long"):
        await worker.compile()
    assert worker._process is None


def children_named(name: str) -> list[str]:
    """The children of this process that run a program."""
    pids = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [pid for pid in pids if name in Path(f"/proc/{pid}/comm").read_text()]


async def test_a_cancelled_compilation_leaves_no_process() -> None:
    worker = WorkerFilter(JAVA, CLASS_NAME, KEEP_FIFTH.encode(), PATIENT)
    await our_classes(find_jdk())
    before = children_named("java")
    with trio.move_on_after(0.05):
        await worker.compile()
    assert children_named("java") == before


async def test_a_killed_process_is_replaced() -> None:
    async with compiled(JAVA, java_source("return false;")) as worker:
        before = pid_of(worker)
        os.kill(before, signal.SIGKILL)
        with pytest.raises(FilterError, match="was ended by SIGKILL"):
            await worker.match(tagged(GOOD), "g")
        assert list(await worker.match(tagged(GOOD), "g")) == [True]
        assert processes_of(before) == []


async def test_a_cancelled_batch_leaves_no_answer_for_the_next_one() -> None:
    async with compiled(JAVA, java_source("while (true) { }")) as worker:
        for _ in range(3):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(worker.match, tagged("x"), "g")
                await trio.testing.wait_all_tasks_blocked()
                nursery.cancel_scope.cancel()
            assert list(await worker.match(tagged(GOOD), "g")) == [True]


async def test_all_protections_are_reported() -> None:
    async with compiled(JAVA, java_source("return true;")) as worker:
        report = worker.protections
    assert {"limits", "privileges", "life", "system calls"} <= report.in_force.keys()
    if os.geteuid() == 0:
        assert int(report.in_force["user"]) >= 0x7000_0000


async def test_a_jvm_that_gets_too_little_memory_says_so() -> None:
    worker = WorkerFilter(JAVA, CLASS_NAME, java_source("return true;").encode(), WorkerLimits(16))
    with pytest.raises(FilterError, match=r"its process (ended|was ended)"):
        await worker.compile()


async def test_without_a_jdk_the_error_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    worker = WorkerFilter(JAVA, CLASS_NAME, KEEP_FIFTH.encode(), PATIENT)
    with monkeypatch.context() as patched:
        patched.delenv("JAVA_HOME", raising=False)
        patched.setenv("PATH", str(tmp_path))
        with pytest.raises(FilterError, match="need a JDK, 11 or newer: no javac in PATH"):
            await worker.compile()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(FilterError, match=r"no javac in JAVA_HOME \(.*\)"):
        await worker.compile()
    (tmp_path / "bin").mkdir()
    shim = tmp_path / "bin" / "javac"
    shim.write_text("#!/bin/sh\n")
    shim.chmod(0o755)
    with pytest.raises(FilterError, match=r"is not a JDK; set JAVA_HOME"):
        await worker.compile()


async def test_our_classes_are_compiled_once_and_only_where_nobody_else_writes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    monkeypatch.setenv(CACHE_VARIABLE, str(cache))
    jdk = find_jdk()
    async with trio.open_nursery() as nursery:
        for _ in range(2):  # two at a time do not disturb each other
            nursery.start_soon(our_classes, jdk)
    classes = await our_classes(jdk)
    assert list(cache.iterdir()) == [classes]
    made = classes.stat().st_mtime_ns
    assert (await our_classes(jdk)).stat().st_mtime_ns == made
    for folder in (classes, cache):
        folder.chmod(0o777)
        with pytest.raises(FilterError, match="can be changed by other users"):
            await our_classes(jdk)
        folder.chmod(0o755)
