"""When a table is saved: at once, together, later; and who hears of it."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from trocket.common.steps import Steps, at_once
from trocket.disk.errors import StoreIOError
from trocket.disk.state_file import StateFile


class Table:
    """A table whose text is a number that changes count up."""

    def __init__(self, *, later: bool = False) -> None:
        self.version = 0
        self.saved: list[bytes] = []
        self.put_off: list[StateFile] = []
        self.is_full = False
        self.file = StateFile(
            "t.json", "things", self._save, self._encode, self.put_off.append if later else None
        )

    def _save(self, name: str, text: bytes) -> None:
        assert name == "t.json"
        if self.is_full:
            raise StoreIOError(name, "no room")
        self.saved.append(text)

    def _encode(self) -> Steps[bytes]:
        return self._text_of(self.version)

    def _text_of(self, version: int) -> Steps[bytes]:
        yield
        return b"%d" % version

    def change(self) -> None:
        self.version += 1
        self.file.changed()


def test_a_change_is_saved_at_once_where_nothing_is_put_off() -> None:
    table = Table()
    table.change()
    table.change()
    assert table.saved == [b"1", b"2"]
    assert not table.file.is_put_off
    called: list[int] = []
    table.file.when_saved(lambda _: called.append(1))
    assert called == [1]


async def test_only_who_asked_for_a_change_hears_that_it_could_not_be_saved() -> None:
    table = Table()
    table.is_full = True
    table.change()
    with pytest.raises(StoreIOError):
        await table.file.saved()
    table.is_full = False
    await table.file.saved()
    assert table.saved == [b"1"]
    await table.file.saved()
    assert table.saved == [b"1"]


def test_a_save_that_is_put_off_calls_back_who_waits_for_that_change() -> None:
    table = Table(later=True)
    called: list[str] = []
    table.change()
    assert table.put_off == [table.file]
    assert table.saved == []
    table.file.when_saved(lambda _: called.append("first"))
    assert table.file.is_put_off
    assert at_once(table.file.begin_save()) == b"1"
    table.file.when_saved(lambda _: called.append("also first"))
    table.change()
    table.file.when_saved(lambda _: called.append("second"))
    assert called == []
    table.file.end_save(None)
    assert called == ["first", "also first"]
    assert table.file.is_put_off
    assert at_once(table.file.begin_save()) == b"2"
    table.file.end_save(None)
    assert called == ["first", "also first", "second"]
    assert not table.file.is_put_off


@pytest.mark.parametrize("later", [False, True])
def test_what_could_not_be_saved_is_saved_again_and_nothing_else(later: bool) -> None:
    table = Table(later=later)

    def save_put_off() -> None:
        for file in table.put_off:
            text = at_once(file.begin_save())
            try:
                table._save("t.json", text)
            except StoreIOError as error:
                file.end_save(error)
            else:
                file.end_save(None)
        table.put_off.clear()

    table.is_full = True
    table.change()
    save_put_off()
    table.file.save_again()
    save_put_off()
    assert table.saved == []
    table.is_full = False
    for _ in range(2):
        table.file.save_again()
        save_put_off()
    assert table.saved == [b"1"]


def test_a_failure_is_logged_once_until_a_save_succeeds(caplog: pytest.LogCaptureFixture) -> None:
    table = Table()
    table.is_full = True
    table.change()
    table.file.save_again()
    assert caplog.text.count("could not be saved") == 1
    table.is_full = False
    table.file.save_again()
    table.is_full = True
    table.change()
    assert caplog.text.count("could not be saved") == 2


async def test_a_put_off_save_that_fails_tells_who_waits_and_is_made_good_by_the_next() -> None:
    table = Table(later=True)
    called: list[object] = []
    error = StoreIOError("t.json", "no room")
    table.change()
    table.file.when_saved(called.append)
    table.file.begin_save()
    table.file.end_save(error)
    assert called == [error]

    async with trio.open_nursery() as nursery:
        table.put_off.clear()
        nursery.start_soon(table.file.saved)
        await trio.testing.wait_all_tasks_blocked()
        assert table.put_off == [table.file]
        assert at_once(table.file.begin_save()) == b"1"
        table.file.end_save(None)

    async with trio.open_nursery() as nursery:
        table.change()

        async def refused() -> None:
            with pytest.raises(StoreIOError):
                await table.file.saved()

        nursery.start_soon(refused)
        await trio.testing.wait_all_tasks_blocked()
        table.file.begin_save()
        table.file.end_save(error)


@pytest.mark.parametrize("later", [False, True])
def test_changes_held_together_are_saved_at_the_end(later: bool) -> None:
    table = Table(later=later)
    with table.file.saving_once():
        table.change()
        table.change()
        assert table.saved == table.put_off == []
    assert table.saved == ([] if later else [b"2"])
    assert table.put_off == ([table.file] if later else [])
