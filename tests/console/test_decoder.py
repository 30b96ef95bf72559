"""A user's decoder, good and hostile, in its process."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest

from trocket.client import ConfigurationError
from trocket.console.bodies.decoder import PROCESSES_MAX, Decoded, Decoder, DecoderFailure

from ..kit.waiting import wait_until

pytestmark = pytest.mark.slow

DEADLINE_S = 60.0
MODULE = """
import os, signal, sys

def text(topic, properties, body):
    print("to standard output", "x" * 100_000)
    return f"{topic} {properties['a']} {body.decode()}"

def raw(topic, properties, body):
    return body[::-1]

def tree(topic, properties, body):
    return {"size": len(body), "订": [1, None]}

def hostile_text(topic, properties, body):
    return "\\ud800<script>\\0\\u202e"

def pid(topic, properties, body):
    return str(os.getpid())

def raising(topic, properties, body):
    raise ValueError("<script>bad body</script>")

def exiting(topic, properties, body):
    sys.exit(3)

def ending(topic, properties, body):
    os._exit(7)

def looping(topic, properties, body):
    while True:
        pass

def forking(topic, properties, body):
    if os.fork() == 0:
        signal.pause()
    while True:
        pass

def allocating(topic, properties, body):
    held = []
    while True:
        held.append(bytearray(1 << 20))

def nothing(topic, properties, body):
    pass

def wrong(topic, properties, body):
    return {1, 2}

def deep(topic, properties, body):
    tree = []
    for _ in range(100_000):
        tree = [tree]
    return tree

def large(topic, properties, body):
    return "x" * (5 << 20)

def closing(topic, properties, body):
    os.closerange(3, 100)
    return "x"

def forging(topic, properties, body):
    for number in range(3, 20):
        try:
            os.write(number, b"\\xff\\xff\\xff\\xff")
        except OSError:
            pass
    return "x"

NUMBER = 5

class Shop:
    @staticmethod
    def decode(topic, properties, body):
        return "from a class"
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package with decoders; after the test, no process of it is left."""
    package = tmp_path / "shop"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "bodies.py").write_text(MODULE)
    (package / "broken.py").write_text("raise RuntimeError('broken at import')")
    (package / "ending.py").write_text("import os; os._exit(1)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    yield
    assert [each for each in psutil.Process(os.getpid()).children() if is_decoder(each)] == []


def decoders(name: str) -> list[psutil.Process]:
    """The processes of a decoder, on the whole machine: its children may have lost their parent."""
    return [each for each in psutil.process_iter() if is_decoder(each, f"shop.bodies:{name}")]


def is_decoder(process: psutil.Process, spec: str = "") -> bool:
    try:
        words = " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return False
    return "decoder_child" in words and spec in words


@pytest.fixture(params=["trio", "asyncio"])
def play(request: pytest.FixtureRequest) -> Callable[[Callable[[], Awaitable[Any]]], Any]:
    def run(function: Callable[[], Awaitable[Any]]) -> Any:
        async def main() -> Any:
            with anyio.fail_after(DEADLINE_S):
                return await function()

        return anyio.run(main, backend=request.param)

    return run


Play = Callable[[Callable[[], Awaitable[Any]]], Any]
# What should succeed has time on a machine that is busy; a loop is ended sooner.
PATIENT_S = 30.0
IMPATIENT_S = 1.0


async def decoded(name: str, body: bytes = b"body", timeout_s: float = PATIENT_S) -> Decoded:
    async with Decoder(f"shop.bodies:{name}", timeout_s=timeout_s) as decoder:
        return await decoder.decode("orders", {"a": "b"}, body)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("text", Decoded(text="orders b body")),
        ("raw", Decoded(body=b"ydob")),
        ("tree", Decoded(text='{\n  "size": 4,\n  "订": [\n    1,\n    null\n  ]\n}')),
        ("hostile_text", Decoded(text="\ud800<script>\0\u202e")),
        ("Shop.decode", Decoded(text="from a class")),
        ("nothing", Decoded(failure=DecoderFailure.NO_RESULT)),
        ("large", Decoded(failure=DecoderFailure.TOO_LARGE, detail=str(5 << 20))),
        ("ending", Decoded(failure=DecoderFailure.ENDED, detail="7")),
        ("allocating", Decoded(failure=DecoderFailure.TOO_MUCH_MEMORY)),
    ],
)
def test_what_a_decoder_returns_or_why_not(play: Play, name: str, expected: Decoded) -> None:
    assert play(lambda: decoded(name)) == expected


@pytest.mark.parametrize(
    ("name", "failure", "detail"),
    [
        ("raising", DecoderFailure.RAISED, "ValueError: <script>bad body</script>"),
        ("exiting", DecoderFailure.RAISED, "SystemExit: 3"),
        ("wrong", DecoderFailure.WRONG_RESULT, "set: "),
        ("deep", DecoderFailure.WRONG_RESULT, "list: "),
        ("closing", DecoderFailure.ENDED, ""),
        ("forging", DecoderFailure.ENDED, ""),
    ],
)
def test_failures_say_what_happened(
    play: Play, name: str, failure: DecoderFailure, detail: str
) -> None:
    found = play(lambda: decoded(name))
    assert (found.failure, found.text, found.body) == (failure, None, None)
    assert detail in found.detail
    assert len(found.detail) <= 2_000


@pytest.mark.parametrize("name", ["looping", "forking"])
def test_a_loop_is_ended_in_time(play: Play, name: str) -> None:
    async def measured() -> tuple[Decoded, float]:
        async with Decoder(f"shop.bodies:{name}", timeout_s=IMPATIENT_S) as decoder:
            begin_s = time.monotonic()
            found = await decoder.decode("orders", {}, b"x" * (4 << 20))
            return found, time.monotonic() - begin_s

    found, took_s = play(measured)
    assert found == Decoded(failure=DecoderFailure.TIMED_OUT, detail="1")
    assert took_s < PATIENT_S
    # Another worker of the tests may have such processes at this moment, for a moment.
    wait_until(lambda: not decoders(name), lambda: f"the end of {decoders(name)}")


def test_one_process_serves_many_calls_and_a_new_one_follows_a_loop(play: Play) -> None:
    async def main() -> None:
        async with Decoder("shop.bodies:pid", timeout_s=PATIENT_S) as decoder:
            first = [await decoder.decode("T", {}, b"") for _ in range(5)]
            assert len({each.text for each in first}) == 1
            os.kill(int(first[0].text or ""), 9)
            gone = await decoder.decode("T", {}, b"")
            assert (gone.failure, gone.detail) == (DecoderFailure.ENDED, "-9")
            again = await decoder.decode("T", {}, b"")
            assert (again.failure, again.text != first[0].text) == (None, True)

    play(main)


def test_there_are_few_processes_and_a_call_does_not_wait_for_long(play: Play) -> None:
    async def main() -> None:
        found: list[Decoded] = []
        async with Decoder("shop.bodies:looping", timeout_s=IMPATIENT_S) as decoder:

            async def call() -> None:
                found.append(await decoder.decode("T", {}, b""))

            async with anyio.create_task_group() as group:
                for _ in range(PROCESSES_MAX + 3):
                    group.start_soon(call)
        failures = [each.failure for each in found]
        assert failures.count(DecoderFailure.TIMED_OUT) >= PROCESSES_MAX
        assert set(failures) <= {DecoderFailure.TIMED_OUT, DecoderFailure.BUSY}

    play(main)


def test_a_viewer_that_leaves_ends_the_process(play: Play) -> None:
    async def main() -> None:
        async with Decoder("shop.bodies:looping", timeout_s=PATIENT_S) as decoder:
            with anyio.move_on_after(0.05):
                await decoder.decode("T", {}, b"")

    play(main)


@pytest.mark.parametrize(
    "spec",
    [
        "",
        "shop",
        "shop:",
        ":decode",
        "shop.bodies decode",
        "shop/bodies:decode",
        "a:b:c",
        "-c:x",
        "a\n:b",
    ],
)
def test_a_spec_of_another_form_is_refused(spec: str) -> None:
    with pytest.raises(ConfigurationError, match="package:function"):
        Decoder(spec)


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("nowhere:decode", "No module named 'nowhere'"),
        ("shop.bodies:nowhere", "has no attribute 'nowhere'"),
        ("shop.bodies:NUMBER", "cannot be called"),
        ("shop.broken:decode", "broken at import"),
        ("shop.ending:decode", "its process ended"),
    ],
)
def test_a_decoder_that_is_not_there_is_refused_at_the_start(
    play: Play, spec: str, why: str
) -> None:
    async def main() -> None:
        with pytest.raises(ConfigurationError, match=why):
            async with Decoder(spec):
                pass

    play(main)
