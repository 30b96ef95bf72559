"""Each blocking class has the methods of its async class, with the same signatures."""

from __future__ import annotations

import importlib
import inspect
import re
from typing import Any

import pytest

from trocket import blocking, client
from trocket.client.admin import Admin as AsyncAdmin
from trocket.client.pushing import pushed_message
from trocket.client.sending import send_buffer

TWINS = [
    (blocking.Client, client.Client),
    (blocking.Producer, client.Producer),
    (blocking.Delivery, send_buffer.Delivery),
    (blocking.TransactionProducer, client.TransactionProducer),
    (blocking.Transaction, client.Transaction),
    (blocking.PushConsumer, client.PushConsumer),
    (blocking.PushedMessage, pushed_message.PushedMessage),
    (blocking.PullConsumer, client.PullConsumer),
    (blocking.SimpleConsumer, client.SimpleConsumer),
    (blocking.Admin, AsyncAdmin),
]

ids = [pytest.param(*pair, id=pair[0].__name__) for pair in TWINS]

MISSING = {"Delivery.wait": "it is `result`, as futures of threads have it"}
"""What the async class has and the blocking one has not, and why. `dir` leaves out internals."""

ADDED = {
    "open": "for programs that cannot use `with`",
    "close": "for programs that cannot use `with`",
    "Delivery.result": "in place of `await delivery`",
}
"""What only the blocking class has."""

DIFFERENT = {
    "PushConsumer.receive": "a thread cannot be cancelled from outside: it has `timeout_s`",
    "PushConsumer.run": "the handler is a plain function",
    "PushedMessage.retry": "a coroutine; a plain handler of the async client need not await it",
}
"""What both have, but not alike."""


def verbs(kind: type) -> dict[str, Any]:
    return {
        name: inspect.getattr_static(kind, name)
        for name in dir(kind)
        if not name.startswith("_") and not is_slot(kind, name)
    }


def is_slot(kind: type, name: str) -> bool:
    return inspect.ismemberdescriptor(inspect.getattr_static(kind, name))


def key(kind: type, name: str) -> str:
    return f"{kind.__name__}.{name}"


@pytest.mark.parametrize(("door", "twin"), ids)
def test_no_verb_is_missing_or_made_up(door: type, twin: type) -> None:
    ours, theirs = set(verbs(door)), set(verbs(twin))
    missing = {key(door, name) for name in theirs - ours}
    assert missing == {name for name in MISSING if name.startswith(f"{door.__name__}.")}
    # Attributes of an async client that are set when it is made are properties here.
    made_up = {name for name in ours - theirs if name not in ADDED and key(door, name) not in ADDED}
    if door is blocking.Client:
        attributes = set(vars(client.Client("127.0.0.1:1")))
        assert made_up <= attributes
        made_up = set()
    assert made_up == set()


@pytest.mark.parametrize(("door", "twin"), ids)
def test_parameters_defaults_and_results_are_the_same(door: type, twin: type) -> None:
    theirs = verbs(twin)
    for name, ours in [*verbs(door).items(), ("__init__", door.__init__)]:
        other = twin.__init__ if name == "__init__" else theirs.get(name)
        if other is None or name in ADDED or key(door, name) in DIFFERENT:
            continue
        if name == "__init__" and door in (
            blocking.Delivery,
            blocking.PushedMessage,
            blocking.Transaction,
        ):
            continue  # programs do not construct them
        if isinstance(ours, property):
            assert isinstance(other, property), key(door, name)
            ours, other = ours.fget, other.fget
        assert described(ours) == described(other), key(door, name)


def described(function: Any) -> list[tuple[str, ...]]:
    """Parameters with kind, type and default, and the result's type, as the source has them."""
    signature = inspect.signature(function)
    parts = [
        (parameter.name, parameter.kind.name, str(parameter.annotation), repr(parameter.default))
        for parameter in signature.parameters.values()
    ]
    result = str(signature.return_annotation).replace("AsyncIterator", "Iterator")
    return [*parts, ("return", result)]


@pytest.mark.parametrize("name", ["Admin"])
def test_docstrings_are_the_same(name: str) -> None:
    """Where nothing differs but the waiting."""
    for verb, theirs in verbs(AsyncAdmin).items():
        ours = verbs(getattr(blocking, name))[verb]
        if verb not in ("client", "open", "close"):
            assert inspect.getdoc(ours) == inspect.getdoc(theirs), verb


def test_the_exceptions_are_all_in_use() -> None:
    for name in [*MISSING, *DIFFERENT]:
        kind, _, verb = name.partition(".")
        twin = {door.__name__: twin for door, twin in TWINS}[kind]
        assert verb in verbs(twin), name


def test_no_blocking_verb_is_async() -> None:
    for door, _ in TWINS:
        for name, verb in verbs(door).items():
            assert not inspect.iscoroutinefunction(verb), key(door, name)


def test_every_class_is_exported() -> None:
    for module in ("admin", "client", "producer", "pull_consumer", "push_consumer"):
        source = inspect.getsource(importlib.import_module(f"trocket.blocking.{module}"))
        for kind in re.findall(r"^class ([A-Z]\w+)", source, re.MULTILINE):
            assert kind in blocking.__all__ or kind.endswith("Member"), kind
