"""blocking/loop_object.py: the states of an object in the loop's thread."""

from __future__ import annotations

import logging

import anyio
import pytest

from tests.kit.waiting import wait_until
from trocket.blocking.loop_object import LoopObject, State
from trocket.client import ClientError, ClosedError

from .support import Null, in_background


class Watched(Null):
    """Notes the state of its loop object whenever it is entered or left."""

    def __init__(self) -> None:
        super().__init__()
        self.may_go_on = anyio.Event()
        self.is_slow = False
        self.home = LoopObject(self, "it", self.before_close)

    async def __aenter__(self) -> Watched:
        self.log.append(self.home.state)
        if self.is_slow:
            await self.may_go_on.wait()
        return self

    async def before_close(self) -> None:
        self.log.append("before close")

    async def __aexit__(self, *error: object) -> None:
        self.log.append(self.home.state)


def test_it_goes_from_state_to_state() -> None:
    watched = Watched()
    home = watched.home
    assert home.state is State.NEW
    home.open()
    assert home.state is State.OPEN
    home.close()
    assert home.state is State.OVER
    assert watched.log == [State.ENTERING, "before close", State.LEAVING]


def test_a_request_to_close_while_it_is_entered_waits_until_it_is_open() -> None:
    watched = Watched()
    watched.is_slow = True
    opening = in_background(watched.home.open)
    wait_until(lambda: watched.log)
    watched.home.close_soon()
    watched.home.thread.post(watched.may_go_on.set)
    opening()
    wait_until(lambda: watched.home.is_over)
    assert watched.log == [State.ENTERING, "before close", State.LEAVING]


def test_an_exception_that_is_none_of_the_programs_skips_what_is_done_before_closing() -> None:
    watched = Watched()
    watched.home.open()
    watched.home.close((KeyboardInterrupt, KeyboardInterrupt(), None))
    assert watched.log == [State.ENTERING, State.LEAVING]


def test_calls_after_the_end_are_refused() -> None:
    watched = Watched()
    watched.home.open()
    with_another = Watched()  # keeps the loop
    with_another.home.open()
    watched.home.close()
    with pytest.raises(ClosedError, match="it is closed"):
        watched.home.call(watched.one)
    with_another.home.close()


@pytest.mark.parametrize("is_awaited", [True, False])
def test_an_error_of_leaving_is_logged_if_no_thread_waits_for_it(
    caplog: pytest.LogCaptureFixture, is_awaited: bool
) -> None:
    class Grumpy(Null):
        async def __aexit__(self, *error: object) -> None:
            raise ClientError("no")

    home = LoopObject(Grumpy(), "it")
    home.open()
    with caplog.at_level(logging.ERROR):
        if is_awaited:
            with pytest.raises(ClientError):
                home.close()
        else:
            home.close_soon()
            wait_until(lambda: home.is_over)
            assert home.thread.join(30.0)
    assert ("could not be closed cleanly" in caplog.text) is not is_awaited
