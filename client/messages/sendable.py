"""Checks of what a program gives to the verbs of a producer: the message, its queue, its body.

Correct calls pay for one comparison of classes.

Java counterpart: none.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from typing import Any, Final

from ...remoting.bodies import MessageQueue
from ..checks.shown import shown
from ..errors import ConfigurationError, MessageRefusedError
from .interceptor import Interceptor
from .message import Message, ReceivedMessage

JSON_LINE: Final = "serializer=json.dumps"


def check_sendable(message: object, verb: str = "send") -> None:
    """Check that something is a Message.

    Raises: MessageRefusedError: it is something else; the text says what to write.
    """
    if isinstance(message, Message):
        return
    given = f"{verb} takes a Message, and got"
    if isinstance(message, ReceivedMessage):
        raise MessageRefusedError(
            f"{given} a received one: forward a copy, {verb}(received.copy_to('topic'))"
        )
    if isinstance(message, str):
        raise MessageRefusedError(
            f"{given} {shown(message)}: write {verb}(Message('orders', {shown(message)})), with the"
            " topic first"
        )
    if isinstance(message, bytes | bytearray | memoryview):
        raise MessageRefusedError(
            f"{given} bytes: write {verb}(Message('orders', {shown(bytes(message))}))"
        )
    if isinstance(message, dict):
        raise MessageRefusedError(
            f"{given} a dict: write {verb}(Message('orders', json.dumps(value))), or"
            f" {verb}(Message('orders', value)) with Producer(..., {JSON_LINE})"
        )
    if isinstance(message, type):
        raise MessageRefusedError(f"{given} a class: write {verb}(Message('orders', b'...'))")
    if isinstance(message, Iterable):
        raise MessageRefusedError(
            f"{given} a {type(message).__name__}: for messages of one topic write"
            f" send_batch(messages), else {verb} each of them"
        )
    if message is None:
        raise MessageRefusedError(f"{given} None: write {verb}(Message('orders', b'...'))")
    name = f"{type(message).__module__}.{type(message).__qualname__}".removeprefix("builtins.")
    raise MessageRefusedError(f"{given} a {name}: write {verb}(Message('orders', b'...'))")


def check_batch(messages: object) -> None:
    """Check that something is a sequence of messages.

    Raises: MessageRefusedError: it is something else.
    """
    if isinstance(messages, Message):
        raise MessageRefusedError(
            "send_batch takes a list of messages: write send_batch([message]), or send(message)"
        )
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes):
        raise MessageRefusedError(
            f"send_batch takes a list of messages, and got {shown(messages)}: write"
            " send_batch([Message('orders', b'...'), ...])"
        )
    for number, message in enumerate(messages):
        if not isinstance(message, Message):
            try:
                check_sendable(message)
            except MessageRefusedError as error:
                raise MessageRefusedError(
                    f"send_batch takes Messages; for [{number}]: {error}"
                ) from None


def wrong_arguments(verb: str, message: object, more: Sequence[object]) -> MessageRefusedError:
    """The error for arguments behind the message that were given by position."""
    rest = ", ".join(map(shown, more))
    if isinstance(message, Message):
        if verb == "send_batch":
            line = "send_batch([first, second])"
        else:
            line = f"{verb}(message, queue=..., timeout_s=...)"
        return MessageRefusedError(
            f"{verb} takes what follows the message by name, and got {rest}: write {line}"
        )
    first = shown(message)
    return MessageRefusedError(
        f"{verb} takes one Message, and got {first}, {rest}: write {verb}(Message({first}, {rest}))"
    )


def call_before_send(interceptors: Sequence[Interceptor], message: Message) -> Message:
    """Call `before_send` of all interceptors, and return the message to send.

    Raises: MessageRefusedError: the program, or an interceptor, gave something else.
    """
    check_sendable(message)
    for interceptor in interceptors:
        changed = interceptor.before_send(message)
        if not isinstance(changed, Message):
            raise MessageRefusedError(
                f"before_send of {type(interceptor).__name__} returned {shown(changed)}: return the"
                " message, or a changed one"
            )
        message = changed
    return message


def wrong_queue(queue: object, topic: str) -> ConfigurationError:
    """The error for a queue of a wrong type."""
    return ConfigurationError(
        f"queue is {shown(queue)}: give one of the queues of producer.queues({topic!r}), or let"
        " sharding_key of the message choose it"
    )


def check_takes(name: str, function: object, example: str) -> None:
    """Check that a function can be called as the client calls it.

    Args:
      name: of the argument that it was given for.
      function: what the program gave.
      example: the function to write, such as "check(message)".

    Raises: ConfigurationError: it cannot be called so.
    """
    if not callable(function):
        raise ConfigurationError(
            f"{name} is {shown(function)}: give a function, such as `def {example}: ...`"
        )
    try:
        inspect.signature(function).bind(*[None] * len(example.split(",")))
    except TypeError as error:
        raise ConfigurationError(
            f"{name} is called as {example}, which {shown(function)} does not take ({error}): write"
            f" `def {example}: ...`"
        ) from None
    except ValueError:  # written in C, without a signature
        return


def wrong_choice(queue: object) -> ConfigurationError:
    """The error for what a selector returned."""
    return ConfigurationError(
        f"the selector returned {shown(queue)}: return one of the queues that it gets, such as"
        " queues[number % len(queues)]"
    )


def wrong_body(body: object, serialized: object, has_serializer: bool) -> MessageRefusedError:
    """The error for a body that cannot be sent.

    Args:
      serialized: what the producer's serializer made of it; the body if there is none.
      has_serializer: whether there is one.
    """
    kind = type(body).__name__
    if has_serializer:
        return MessageRefusedError(
            f"the serializer returned {shown(serialized)} for a body of the type {kind}: return"
            f" bytes or str, such as {JSON_LINE}"
        )
    return MessageRefusedError(
        f"the body has the type {kind}: give bytes or str, such as json.dumps(body), or give the"
        f" producer a serializer: Producer(..., {JSON_LINE})"
    )


def is_queue(queue: Any) -> bool:
    """Whether it is a queue."""
    return isinstance(queue, MessageQueue)
