"""A blocking object: opening, closing, threads, Ctrl-C, and the end of the program."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.kit.waiting import wait_until
from trocket.blocking import (
    Client,
    Producer,
    PullConsumer,
    PushConsumer,
    SimpleConsumer,
    loop_thread,
)
from trocket.blocking.loop_thread import LoopThread
from trocket.client import Client as AsyncClient
from trocket.client import (
    ClientError,
    ClosedError,
    ConfigurationError,
    ConnectError,
    Interceptor,
    Message,
    SendStatus,
)
from trocket.testing import Broker

from .support import DEADLINE_S, BlockingNull, Null, in_background, waiting_threads

NOBODY = "rocketmq://127.0.0.1:1"


def loop_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "trocket-blocking"]


@pytest.fixture
def null() -> Iterator[BlockingNull]:
    with BlockingNull() as null:
        yield null


# Opening and closing


@pytest.mark.parametrize("kind", [PushConsumer, SimpleConsumer])
def test_an_iteration_over_what_was_never_opened_fails_and_over_what_was_closed_ends(
    broker: Broker, kind: Any
) -> None:
    consumer = kind(broker.url, group="never_opened", subscriptions={"T": "*"})
    with pytest.raises(ClosedError, match="is not open"):
        next(iter(consumer))
    with consumer:
        pass
    assert list(consumer) == []


def test_all_objects_share_one_thread_which_ends_with_the_last(broker: Broker) -> None:
    assert loop_threads() == []
    with Client(broker.url) as client:
        with Producer(client), PullConsumer(broker.url, group="g"):
            assert len(loop_threads()) == 1
            assert loop_threads()[0].daemon
        assert len(loop_threads()) == 1
        assert client.check_open() is None
    assert loop_threads() == []


def test_open_and_close_do_what_with_does(broker: Broker, topic: str) -> None:
    producer = Producer(broker.url).open()
    assert producer.send(Message(topic, "one")).status is SendStatus.SEND_OK
    producer.close()
    producer.close()
    assert loop_threads() == []


def test_an_object_that_is_not_open_says_so(broker: Broker) -> None:
    producer = Producer(broker.url)
    with pytest.raises(ClosedError, match="use `with`"):
        producer.send(Message("T", "one"))
    producer.close()
    with producer:
        pass
    with pytest.raises(ClosedError, match="this Producer is closed"):
        producer.send(Message("T", "one"))
    with pytest.raises(ClosedError, match="closed"):
        producer.send_soon(Message("T", "one"))
    with pytest.raises(ClosedError, match="opened only once"):
        producer.open()


def test_opening_twice_is_refused(broker: Broker) -> None:
    with Producer(broker.url) as producer:
        with pytest.raises(ClosedError, match="opened only once"):
            producer.open()
        assert producer.queues


def test_what_failed_to_open_can_be_tried_again() -> None:
    attempts = []

    class Shy(Null):
        async def __aenter__(self) -> Shy:
            attempts.append(self)
            if len(attempts) == 1:
                raise ConnectError("127.0.0.1:1", "connection refused")
            return self

    null = BlockingNull(Shy)
    with pytest.raises(ConnectError):
        null.open()
    assert loop_threads() == []
    with null:
        assert len(set(attempts)) == 2


def test_a_wrong_argument_is_refused_before_anything_is_opened() -> None:
    with pytest.raises(ConfigurationError):
        Producer("ftp://nowhere")
    with pytest.raises(ConfigurationError, match="unknown option"):
        Client(NOBODY, timeout=3)  # type: ignore[call-arg]
    with pytest.raises(ConfigurationError, match="blocking"):
        Producer(AsyncClient(NOBODY))  # type: ignore[arg-type]
    with pytest.raises(ClosedError):
        Producer(Client(NOBODY)).open()


def test_the_exception_of_the_block_reaches_the_async_object() -> None:
    null = BlockingNull()
    with pytest.raises(ZeroDivisionError), null:
        raise ZeroDivisionError
    assert null.log == ["enter", ("exit", ZeroDivisionError)]


def test_a_waiting_call_fails_when_its_object_is_closed() -> None:
    null = BlockingNull().open()
    waiting = in_background(null.wait_for_ever)
    wait_until(lambda: "waiting" in null.log)
    null.close()
    with pytest.raises(ClosedError, match="closed"):
        waiting()
    assert null.log[-1] == "cancelled"


def test_the_error_of_leaving_comes_out_of_close() -> None:
    class Grumpy(Null):
        async def __aexit__(self, kind: Any, error: Any, traceback: Any) -> None:
            raise ClientError("no")

    null = BlockingNull(Grumpy).open()
    with pytest.raises(ClientError, match="no"):
        null.close()
    assert loop_threads() == []


def test_posts_after_the_end_are_refused_and_do_not_hang(null: BlockingNull) -> None:
    thread: LoopThread = null.thread
    null.close()
    waiter = loop_thread.Waiter[None]()
    thread.post(print, waiter=waiter)
    assert waiter.wait(DEADLINE_S)
    with pytest.raises(ClosedError):
        waiter.take()


@pytest.mark.slow
def test_opening_and_closing_in_many_threads_at_once_never_loses_the_loop() -> None:
    def work(_: int) -> int:
        total = 0
        for _ in range(50):
            with BlockingNull() as null:
                total += null.one()
        return total

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(work, range(8))) == 400
    assert loop_threads() == []


def test_an_unreferenced_object_is_closed_with_a_warning() -> None:
    null = BlockingNull().open()
    log = null.log
    holder = [null]
    del null
    with pytest.warns(ResourceWarning, match="was not closed"):
        holder.clear()
    wait_until(lambda: not loop_threads())
    assert log == ["enter", ("exit", None)]


# In the loop's thread


def test_a_blocking_call_in_the_loops_thread_is_refused(broker: Broker, topic: str) -> None:
    seen: list[BaseException] = []

    class Careless(Interceptor):
        def before_send(self, message: Message) -> Message:
            try:
                producer.queues(topic)
            except ClientError as error:
                seen.append(error)
            return message

    with Producer(broker.url, interceptors=[Careless()]) as producer:
        producer.send(Message(topic, "one"))
    assert "would wait for itself" in str(seen[0])


def test_interceptors_see_the_callers_context(broker: Broker, topic: str) -> None:
    span: contextvars.ContextVar[str] = contextvars.ContextVar("span", default="none")
    seen = []

    class Tracer(Interceptor):
        def before_send(self, message: Message) -> Message:
            seen.append((span.get(), threading.current_thread().name))
            return message

    with Producer(broker.url, interceptors=[Tracer()]) as producer:
        span.set("mine")
        producer.send(Message(topic, "one"))
        span.set("next")
        producer.send_soon(Message(topic, "two")).result(DEADLINE_S)
    assert seen == [("mine", "trocket-blocking"), ("next", "trocket-blocking")]


# Ctrl-C

on_posix = pytest.mark.skipif(sys.platform == "win32", reason="no pthread_kill on Windows")


def interrupt_when(condition: Callable[[], object], *, does_break_in: bool = True) -> None:
    """Ctrl-C, once something is the case.

    Args:
      does_break_in: the main thread gets the signal; else another thread, as far as the system is
        concerned, so that it ends no wait of the main thread.
    """
    main = threading.main_thread().ident
    assert main is not None

    def work() -> None:
        wait_until(condition)
        receiver = main if does_break_in else threading.get_ident()
        signal.pthread_kill(receiver, signal.SIGINT)

    threading.Thread(target=work, daemon=True).start()


@on_posix
def test_ctrl_c_breaks_into_a_call_and_cancels_it(null: BlockingNull) -> None:
    interrupt_when(lambda: "waiting" in null.log)
    with pytest.raises(KeyboardInterrupt):
        null.wait_for_ever()
    wait_until(lambda: null.log[-1] == "cancelled")


@pytest.mark.slow
@on_posix
def test_ctrl_c_is_noticed_that_ends_no_wait(null: BlockingNull) -> None:
    interrupt_when(lambda: "waiting" in null.log, does_break_in=False)
    with pytest.raises(KeyboardInterrupt):
        null.wait_for_ever()


@pytest.mark.slow
@on_posix
@pytest.mark.parametrize(
    ("consume", "waits"),
    [
        (lambda consumer: consumer.receive(), lambda: waiting_threads("message_buffer.py")),
        (
            lambda consumer: consumer.run(lambda message: None, concurrency=1),
            # The handler's thread, and the main thread.
            lambda: waiting_threads("handler_threads.py") == 2,
        ),
    ],
    ids=["receive", "run"],
)
def test_a_consumer_notices_ctrl_c_that_ends_no_wait(
    consume: Callable[[PushConsumer], object],
    waits: Callable[[], object],
    broker: Broker,
    topic: str,
) -> None:
    with PushConsumer(broker.url, group="g", subscriptions={topic: "*"}) as consumer:
        interrupt_when(waits, does_break_in=False)
        with pytest.raises(KeyboardInterrupt):
            consume(consumer)


@on_posix
def test_ctrl_c_breaks_into_opening() -> None:
    class Slow(Null):
        async def __aenter__(self) -> Slow:
            await self.wait_for_ever()
            return self

    null = BlockingNull(Slow)
    interrupt_when(lambda: "waiting" in null.log)
    with pytest.raises(KeyboardInterrupt):
        null.open()
    wait_until(lambda: not loop_threads())


@pytest.mark.parametrize("moment", ["before", "after"])
def test_ctrl_c_around_the_first_post_leaves_no_thread(
    monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """It comes between any two steps of Python, not only into a wait."""
    post = LoopThread.post

    def interrupted(thread: LoopThread, *args: Any, **kwargs: Any) -> None:
        monkeypatch.setattr(LoopThread, "post", post)
        if moment == "after":
            post(thread, *args, **kwargs)
        raise KeyboardInterrupt

    monkeypatch.setattr(LoopThread, "post", interrupted)
    with pytest.raises(KeyboardInterrupt):
        BlockingNull().open()
    wait_until(lambda: not loop_threads())


def test_ctrl_c_while_the_loop_is_woken_does_not_make_it_sleep_for_ever(
    null: BlockingNull, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread = null.thread
    ran: list[str] = []

    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(asyncio.BaseEventLoop, "call_soon_threadsafe", interrupted)
        with pytest.raises(KeyboardInterrupt):
            thread.post(ran.append, "first")
    thread.post(ran.append, "second")
    wait_until(lambda: ran == ["first", "second"])


@on_posix
def test_ctrl_c_breaks_into_receive(broker: Broker, topic: str, group: str) -> None:
    with PushConsumer(broker.url, group=group, subscriptions={topic: "*"}) as consumer:
        interrupt_when(lambda: waiting_threads("message_buffer.py"))
        with pytest.raises(KeyboardInterrupt):
            consumer.receive()


@on_posix
def test_ctrl_c_breaks_into_run(broker: Broker, topic: str, group: str) -> None:
    with PushConsumer(broker.url, group=group, subscriptions={topic: "*"}) as consumer:
        interrupt_when(lambda: waiting_threads("message_buffer.py"))
        with pytest.raises(KeyboardInterrupt):
            consumer.run(print, concurrency=2)
        wait_until(lambda: not [t for t in threading.enumerate() if "trocket-handler" in t.name])


# The end of the program

FORGETFUL = """
import sys, threading
from trocket.blocking import Message, Producer, PushConsumer
url, topic, how = sys.argv[1:]
producer = Producer(url).open()
consumer = PushConsumer(url, group="forgetful", subscriptions={topic: "*"}).open()
producer.send(Message(topic, "first"))
for number in range(100):
    producer.send_soon(Message(topic, str(number)))
if how == "waiting":
    threading.Thread(target=list, args=(consumer,), daemon=True).start()
if how == "error":
    raise SystemExit(3)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("how", "code"), [("plain", 0), ("waiting", 0), ("error", 3)])
def test_a_program_that_forgets_to_close_ends_and_loses_nothing(
    broker: Broker, topic: str, how: str, code: int
) -> None:
    start_s = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORGETFUL, broker.url, topic, how],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert "still open at the end of the program: this Producer; this PushConsumer" in done.stderr
    assert time.monotonic() - start_s < 20
    assert len(broker.messages(topic)) == 101


STUCK = """
import sys, threading
import trocket.blocking.loop_thread as loop_thread
from trocket.blocking.blocking_object import BlockingObject
loop_thread.EXIT_TIMEOUT_S = 0.2

class Stuck:
    async def __aenter__(self): return self
    async def __aexit__(self, *error):
        import anyio
        with anyio.CancelScope(shield=True):
            await anyio.sleep_forever()

null = BlockingObject(Stuck).open()
"""


@pytest.mark.slow
def test_an_object_that_cannot_be_closed_does_not_keep_the_program_alive() -> None:
    done = subprocess.run(
        [sys.executable, "-c", STUCK], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0
    assert "not closed within 0.2 s" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_failing_loop_is_logged_and_the_next_object_gets_another(
    caplog: pytest.LogCaptureFixture,
) -> None:
    null = BlockingNull().open()
    waiting = in_background(null.wait_for_ever)
    wait_until(lambda: "waiting" in null.log)

    def burst() -> None:
        raise SystemExit(7)

    with caplog.at_level(logging.CRITICAL):
        null.thread.post(burst)
        with pytest.raises(ClosedError):
            waiting()
    wait_until(lambda: not loop_threads())
    assert "the loop of trocket.blocking failed" in caplog.text
    with BlockingNull():
        pass
    with pytest.raises(ClosedError):
        null.wait_for_ever()
    null.close()


def test_the_client_has_the_verbs_of_its_twin(broker: Broker, topic: str) -> None:
    with Client(broker.url, namespace="N") as client:
        assert client.client_id.endswith(client.instance_name)
        assert client.namespace == "N"
        assert client.timeout_s == 3.0
        assert client.credentials is None
        assert client.interceptors == ()
        assert client.url.name_servers == (broker.namesrv_address,)
        assert client.without_namespace(client.with_namespace("T")) == "T"
        route = client.route(topic)
        name = route.broker_datas[0].broker_name
        assert client.broker_address(name) == broker.broker_address
        assert client.broker_addresses() == {name: {0: broker.broker_address}}
        client.refresh_soon()
        client.heartbeat_soon()
        client.heartbeat()


def test_the_own_client_of_a_producer_is_there_but_not_to_be_closed(broker: Broker) -> None:
    with Producer(broker.url) as producer:
        client = producer.client
        client.close()
        assert client.broker_addresses() == {}
        with pytest.raises(ClosedError, match="opened and closed with it"):
            client.open()
    with pytest.raises(ClosedError):
        client.broker_addresses()
