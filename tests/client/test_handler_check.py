"""Which handlers `run` takes: every kind of callable is judged rightly, before any message."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from trocket import ConfigurationError, PushConsumer, blocking
from trocket.client.pushing.handler_check import Handlers, check_handler, check_outcome
from trocket.testing import Broker

from .conftest import Play


class Shop:
    def handle(self, message: object) -> None: ...

    async def bill(self, message: object) -> None: ...

    @staticmethod
    def plain(message: object) -> None: ...

    @classmethod
    async def by_class(cls, message: object) -> None: ...


class Called:
    async def __call__(self, message: object) -> None: ...


class Generates:
    def __call__(self, message: object) -> Iterator[None]:
        yield


def two(message: object, db: str) -> None: ...


async def two_async(message: object, db: str) -> None: ...


def none() -> None: ...


def named(message: object, *, db: str) -> None: ...


def only_named(*, message: object) -> None: ...


def with_default(message: object, db: str = "") -> None: ...


async def bill(message: object) -> None: ...


def generator(message: object) -> Iterator[None]:
    yield


async def async_generator(message: object) -> AsyncIterator[None]:
    yield


@contextlib.contextmanager
def context(message: object) -> Iterator[None]:
    yield


@contextlib.asynccontextmanager
async def async_context(message: object) -> AsyncIterator[None]:
    yield


def with_db(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(message: object) -> Any:
        return function(message, "db")

    return call


@pytest.mark.parametrize(
    ("handler", "is_async"),
    [
        (bill, True),
        (print, False),
        (with_default, False),
        (Shop().handle, False),
        (Shop().bill, True),
        (Shop.plain, False),
        (Shop.__dict__["plain"], False),
        (Shop.by_class, True),
        (Called(), True),
        (Called().__call__, True),
        (functools.partial(Called()), True),
        (functools.partial(two, db="x"), False),
        (functools.partial(two_async, db="x"), True),
        (functools.partial(functools.partial(named), db="x"), False),
        (with_db(two), False),
        (lambda message: None, False),
        (lambda *args, **more: None, False),
        (Mock(), False),
        (AsyncMock(), True),
    ],
)
def test_what_can_be_called_with_a_message_is_a_handler(handler: Any, is_async: bool) -> None:
    assert check_handler(handler).is_async is is_async


@pytest.mark.parametrize(
    ("handler", "text"),
    [
        (None, "the handler is None: give a function, such as `async def handle(message): ...`"),
        ("handle", "the handler is the str 'handle', which cannot be called"),
        (3, "the handler is the int 3"),
        ([bill], "which cannot be called"),
        (Shop(), "which cannot be called"),
        (generator(None), "the handler is a generator"),
        (Shop, "client.test_handler_check.Shop, of which a call only makes an object"),
        (functools.partial(Shop), "pass a method of an object, such as Shop().handle"),
        (list[int], "is the class"),
        (two, "two needs message and db, but it is called with the message alone"),
        (two_async, "functools.partial(two_async, db=...)"),
        (named, "functools.partial(named, db=...)"),
        (none, "takes no argument"),
        (only_named, "takes no argument, but needs message"),
        (functools.partial(bill, 1), "takes no argument"),
        (Shop.handle, "pass the method of one, such as Shop().handle"),
        (generator, "is a generator function, of which a call runs nothing: remove its `yield`"),
        (async_generator, "is a generator function"),
        (functools.partial(generator), "is a generator function"),
        (Generates(), "is a generator function"),
        (context, "is a context manager"),
        (async_context, "is a context manager"),
    ],
)
def test_what_cannot_handle_a_message_is_refused_with_what_to_write(
    handler: Any, text: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        check_handler(handler)
    assert text in str(refused.value)


def test_a_coroutine_is_not_the_function_that_makes_it() -> None:
    coroutine = bill(None)
    with pytest.raises(ConfigurationError, match="pass the function itself, without calling it"):
        check_handler(coroutine)
    coroutine.close()


@pytest.mark.parametrize(
    ("function", "text"),
    [(generator, "a generator"), (async_generator, "a generator"), (context, "a context manager")],
)
def test_a_handler_that_hides_a_generator_fails(function: Any, text: str) -> None:
    with pytest.raises(ConfigurationError, match=f"returned {text}, of which nothing ran"):
        check_outcome(function(None), "a.name")
    check_outcome(None, "a.name")
    check_outcome(3, "a.name")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"A": bill}, "no handler for B: give `run` one for each subscribed topic"),
        ({}, "no handler for A and B"),
        ({"A": bill, "B": bill, "C": bill}, "a handler for C, but the consumer subscribes to A"),
        ({"A": bill, "B": None}, "the handler is None"),
    ],
)
def test_topics_and_handlers_must_match(given: Any, text: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        Handlers(given, ["A", "B"])
    assert text in str(refused.value)


def test_a_topic_without_subscription_has_no_handler() -> None:
    handlers = Handlers({"A": bill, "B": two_of_one}, ["A", "B"])
    assert handlers.find("B").function is two_of_one
    with pytest.raises(ConfigurationError, match="no handler for the topic Old"):
        handlers.find("Old")


def two_of_one(message: object) -> None: ...


WRONG_NUMBERS: list[tuple[dict[str, Any], str]] = [
    ({"concurrency": 0}, "concurrency 0 is not in 1..1024"),
    ({"concurrency": "4"}, "concurrency '4' is not in"),
    ({"concurrency": 2000}, "is not in 1..1024"),
    ({"concurrency": True}, "is not in"),
    ({"batch": 0}, "batch 0 is not in 1..1024"),
    ({"batch": 2.5}, "batch 2.5 is not in"),
    ({"batch": 2, "linger_s": -1}, "linger_s -1 is not in 0..60"),
    ({"batch": 2, "linger_s": "1"}, "linger_s '1' is not in"),
    ({"linger_s": 1.0}, "give `batch`, its size, too"),
]


def test_run_refuses_before_it_takes_a_message(
    play: Play, broker: Broker, topic: str, group: str
) -> None:
    async def scenario() -> None:
        async with PushConsumer(broker.url, group=group, subscriptions={topic: "*"}) as consumer:
            wrong: Any
            for wrong in (None, generator, two_async, Shop, {"Other": bill}, {}):
                with pytest.raises(ConfigurationError):
                    await consumer.run(wrong)
            for options, text in WRONG_NUMBERS:
                with pytest.raises(ConfigurationError) as refused:
                    await consumer.run(bill, **options)
                assert text in str(refused.value)
            assert consumer.handler is None

    play(scenario)


def test_the_blocking_run_refuses_the_same(broker: Broker, topic: str, group: str) -> None:
    with blocking.PushConsumer(broker.url, group=group, subscriptions={topic: "*"}) as consumer:
        wrong: Any
        for wrong in (None, generator, two, Shop, {"Other": print}, {}):
            with pytest.raises(ConfigurationError):
                consumer.run(wrong)
        for wrong in (bill, Called(), functools.partial(bill), {topic: Shop().bill}):
            with pytest.raises(ConfigurationError, match="is async: pass a plain function"):
                consumer.run(wrong)
        for options, text in WRONG_NUMBERS:
            with pytest.raises(ConfigurationError) as refused:
                consumer.run(print, **options)
            assert text in str(refused.value)
        assert consumer.handler is None
