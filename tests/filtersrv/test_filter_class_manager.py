"""Filter classes by group: permission to upload, and other sources of classes."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from trocket.common.filter_policy import FilterPolicy
from trocket.filtersrv import filter_class_manager
from trocket.filtersrv.filter_class_manager import FilterClassManager, crc_of
from trocket.filtersrv.filters import ExpressionFilter, FilterCompileError
from trocket.filtersrv.repository import RepositoryError
from trocket.filtersrv.workers import FilterLanguage
from trocket.remoting.errors import RequestRefused
from trocket.remoting.response_codes import ResponseCode

SOURCE = b"class Keep: pass"
OPEN = {"python_filter_enable": True, "java_filter_enable": True, "filter_upload_groups": "g"}


class Worker:
    def __init__(self, source):
        self.source = source
        self.is_closed = self.is_disabled = False

    async def match(self, messages, group):
        return [True for _ in messages]

    async def aclose(self):
        self.is_closed = True


class Manager(FilterClassManager):
    """One whose workers, repository and broker are tables."""

    def __init__(self, configured=None, **policy):
        super().__init__(
            FilterPolicy(**policy),
            configured or {},
            make_worker=self.make,
            fetch_source=self.fetch,
            ask_class_name=self.ask,
        )
        self.made = []
        self.sources = {}
        self.class_names = {}
        self.questions = 0
        self.gate = None

    async def make(self, language, class_name, source):
        if self.gate is not None:
            await self.gate.wait()
        if b"syntax error" in source:
            raise FilterCompileError("line 1: syntax error")
        self.made.append(Worker(source))
        return self.made[-1]

    async def fetch(self, class_name):
        if class_name not in self.sources:
            raise RepositoryError(f"{class_name}: not there")
        return FilterLanguage.PYTHON, self.sources[class_name]

    async def ask(self, topic, group):
        self.questions += 1
        return self.class_names.get((topic, group))

    async def upload(self, source=SOURCE, *, crc=None, name="a.Keep", group="g", language="python"):
        crc = crc_of(source) if crc is None else crc
        await self.register("T", group, name, crc, language, source)


async def refused(call, match, code=ResponseCode.SYSTEM_ERROR):
    with pytest.raises(RequestRefused, match=match) as refusal:
        await call
    assert refusal.value.code == code


async def test_an_uploaded_class_decides_until_another_comes():
    manager = Manager(**OPEN)
    await manager.upload()
    (first,) = manager.made
    assert await manager.find("T", "g") is first
    await manager.upload()
    assert manager.made == [first]
    await manager.upload(b"class Keep: 2")
    assert await manager.find("T", "g") is manager.made[1]
    assert first.is_closed
    await manager.aclose()
    assert manager.made[1].is_closed


async def test_a_class_that_does_not_compile_leaves_the_one_before_in_force():
    manager = Manager(**OPEN)
    await refused(manager.upload(b"syntax error"), "registerFilterClass error: line 1")
    await refused(manager.find("T", "g"), "registered but no class: line 1: syntax error")
    assert manager.classes["T", "g"].state == "broken"
    await manager.upload()
    await refused(manager.upload(b"syntax error 2"), "registerFilterClass error")
    assert await manager.find("T", "g") is manager.made[0]
    assert manager.classes["T", "g"].error == "line 1: syntax error"


async def test_the_same_source_uploaded_anew_brings_a_disabled_class_back():
    manager = Manager(**OPEN)
    await manager.upload()
    manager.made[0].is_disabled = True
    assert manager.classes["T", "g"].state == "disabled"
    await manager.upload()
    assert await manager.find("T", "g") is manager.made[1]
    assert manager.made[0].is_closed


async def test_the_repository_brings_a_disabled_class_back():
    manager = Manager(client_upload_filter_class_enable=False, python_filter_enable=True)
    manager.sources["a.Keep"] = SOURCE
    await manager.upload()
    manager.made[0].is_disabled = True
    await manager.refresh()
    assert await manager.find("T", "g") is manager.made[1]


@pytest.mark.parametrize(
    ("policy", "upload", "why", "code"),
    [
        ({"python_filter_enable": False}, {}, "filters in python are disabled here", 16),
        (
            {"java_filter_enable": False},
            {"language": "java"},
            "filters in java are disabled here",
            16,
        ),
        ({}, {"group": "other"}, "group other may not upload", 16),
        ({"filter_upload_groups": ""}, {}, "group g may not upload", 16),
        ({}, {"language": "ruby"}, "'ruby' is not a language", 1),
        ({}, {"crc": 1}, "the source's CRC is", 1),
        ({}, {"source": b"#" * 65_537}, "at most 65536 bytes, not 65537", 1),
        ({}, {"name": "../../etc/passwd"}, "is not a class name", 1),
        ({}, {"name": "a.B;touch /tmp/x"}, "is not a class name", 1),
        ({}, {"name": "$(reboot)"}, "is not a class name", 1),
        ({}, {"name": "a..B"}, "is not a class name", 1),
        ({}, {"name": ""}, "is not a class name", 1),
        ({}, {"name": "a" * 256}, "at most 255 characters, not 256", 1),
        ({}, {"group": "g/../x"}, "contains illegal characters", 1),
    ],
)
async def test_what_may_not_be_uploaded_is_refused(policy, upload, why, code):
    manager = Manager(**OPEN | policy)
    await refused(manager.upload(**upload), why, code)
    assert manager.made == []
    assert not manager.classes


async def test_without_configuration_nothing_is_taken():
    await refused(Manager().upload(), "disabled here", ResponseCode.NO_PERMISSION)


async def test_everybody_may_upload_where_the_operator_says_so():
    manager = Manager(**OPEN | {"filter_upload_groups": "a, *"})
    await manager.upload(group="anybody")
    assert len(manager.made) == 1


async def test_the_operators_class_goes_before_what_is_uploaded():
    mine = ExpressionFilter("a = 1")
    manager = Manager({"a.Keep": mine})
    await manager.upload(crc=5)
    assert await manager.find("T", "g") is mine
    assert await manager.remove("T", "g")
    assert not await manager.remove("T", "g")
    await manager.aclose()


async def test_two_members_that_upload_the_same_wait_for_one_compilation(autojump_clock):
    manager = Manager(**OPEN)
    manager.gate = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(manager.upload)
        nursery.start_soon(manager.upload)
        await trio.testing.wait_all_tasks_blocked()
        await refused(manager.find("T", "g"), "registered but no class")
        assert manager.classes["T", "g"].state == "fetching"
        manager.gate.set()
    assert len(manager.made) == 1


async def test_a_class_removed_while_it_compiles_leaves_no_process():
    manager = Manager(**OPEN)
    manager.gate = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(manager.upload)
        await trio.testing.wait_all_tasks_blocked()
        assert await manager.remove("T", "g")
        manager.gate.set()
    assert manager.made[0].is_closed
    await refused(manager.find("T", "g"), "not registered")


async def test_there_are_only_so_many_classes(monkeypatch):
    monkeypatch.setattr(filter_class_manager, "CLASSES_MAX", 1)
    manager = Manager(**OPEN | {"filter_upload_groups": "*"})
    await manager.upload()
    await refused(manager.upload(group="h"), "no more than 1 filter classes")
    await manager.upload(b"class Keep: 2")


async def test_the_broker_is_asked_for_classes_that_were_not_uploaded(autojump_clock):
    mine = ExpressionFilter("a = 1")
    manager = Manager({"a.Keep": mine})
    await refused(manager.find("T", "g"), "not registered")
    await refused(manager.find("T", "g"), "not registered")
    assert manager.questions == 1
    manager.class_names["T", "g"] = "a.Keep"
    await trio.sleep(filter_class_manager.ASK_AGAIN_S)
    assert await manager.find("T", "g") is mine


@pytest.mark.parametrize(
    ("class_name", "why"),
    [("a.Other", "not registered"), ("../a", "is not a class name"), ("", "is not a class name")],
)
async def test_what_the_broker_names_is_not_taken_where_uploads_are_on(class_name, why):
    manager = Manager(**OPEN)
    manager.class_names["T", "g"] = class_name
    await refused(manager.find("T", "g"), why)


async def test_a_class_of_the_repository_is_fetched_at_once_and_anew_when_it_changed():
    manager = Manager(client_upload_filter_class_enable=False, python_filter_enable=True)
    manager.sources["a.Keep"] = SOURCE
    manager.class_names["T", "g"] = "a.Keep"
    first = await manager.find("T", "g")
    assert first.source == SOURCE
    await manager.refresh()
    assert await manager.find("T", "g") is first
    manager.sources["a.Keep"] = b"class Keep: 2"
    await manager.refresh()
    assert (await manager.find("T", "g")).source == b"class Keep: 2"
    del manager.sources["a.Keep"]
    await manager.refresh()
    assert manager.classes["T", "g"].error == "a.Keep: not there"
    assert (await manager.find("T", "g")).source == b"class Keep: 2"


async def test_what_a_client_uploads_beside_a_repository_only_names_the_class():
    manager = Manager(client_upload_filter_class_enable=False, python_filter_enable=True)
    await manager.upload(b"import os")
    await refused(manager.find("T", "g"), "registered but no class: a.Keep: not there")
    manager.sources["a.Keep"] = SOURCE
    await manager.refresh()
    assert [worker.source for worker in manager.made] == [SOURCE]


async def test_a_language_that_is_off_is_off_for_the_repository_too():
    manager = Manager(client_upload_filter_class_enable=False, java_filter_enable=True)
    manager.sources["a.Keep"] = SOURCE
    await manager.upload()
    await refused(manager.find("T", "g"), "filters in python are disabled here")
