"""The context of a scenario: its topic, which is also its group's name, its clients and facts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any, TypeAlias

import anyio
import anyio.abc

from trocket import ConsumeFromWhere, Message

from .door import AsyncDoor, settled

DEADLINE_S = 60
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET

Play: TypeAlias = "Callable[[Stage], Awaitable[None]]"


class Inbox:
    """The items received so far, in order; waiting has a deadline."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self._arrival = anyio.Event()

    def put(self, item: Any) -> None:
        self.items.append(item)
        self._arrival.set()
        self._arrival = anyio.Event()

    async def wait(self, enough: int | Callable[[list[Any]], bool]) -> list[Any]:
        """All items, once they are enough."""
        with anyio.move_on_after(DEADLINE_S):
            while not (enough(self.items) if callable(enough) else len(self.items) >= enough):
                await self._arrival.wait()
            return list(self.items)
        raise TimeoutError(f"only {len(self.items)} came: {self.items}")


class Stage:
    """The context of one scenario. Use it as a context manager: it closes its clients."""

    def __init__(self, door: AsyncDoor, namesrv: str, topic: str, producer: Any) -> None:
        self.door = door
        self.namesrv = namesrv
        self.topic = topic
        self.producer = producer
        self.facts: dict[str, Any] = {}
        self._stack = AsyncExitStack()
        self._tasks: anyio.abc.TaskGroup

    async def __aenter__(self) -> Stage:
        self._tasks = await self._stack.enter_async_context(anyio.create_task_group())
        return self

    async def __aexit__(self, *error: Any) -> None:
        # Consumers first: their handlers run in the tasks.
        await self._stack.aclose()

    async def enter(self, client: Any) -> Any:
        """Open a client until the scenario is over."""
        return await self._stack.enter_async_context(client)

    def start_soon(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run something in the background; it must end when the scenario does."""
        self._tasks.start_soon(work)

    def message(self, body: str, tags: str | None = None, keys: str = "", **more: Any) -> Message:
        return Message(self.topic, body, tags=tags, keys=keys, **more)

    async def send(self, *bodies: str) -> None:
        """Send strings without tags, by turns to all queues."""
        for body in bodies:
            await self.producer.send(self.message(body))

    async def send_to(self, queue_id: int, message: Message) -> Any:
        queues = await self.producer.queues(message.topic)
        queue = next(queue for queue in queues if queue.queue_id == queue_id)
        return await self.producer.send(message, queue=queue)

    def consumer(self, group: str = "", expression: Any = "*", **options: Any) -> Any:
        """A push consumer of the scenario's topic; it begins with the first message."""
        options.setdefault("consume_from_where", FIRST)
        options.setdefault("subscriptions", {self.topic: expression})
        return self.door.push_consumer(
            self.namesrv, group=group or self.topic, timeout_s=10.0, **options
        )

    async def run(self, consumer: Any, handler: Any, *, concurrency: int = 1) -> Any:
        """Open a consumer and have a handler called for each message."""
        opened = await self.enter(consumer)
        self._stack.push_async_callback(_stop, opened)
        call = self.door.handler(handler)
        self._tasks.start_soon(lambda: opened.run(call, concurrency=concurrency))
        return opened

    async def listen(self, consumer: Any) -> Inbox:
        """Take all that a consumer gets into an inbox."""
        inbox = Inbox()

        async def take(message: Any) -> None:
            inbox.put(message)

        await self.run(consumer, take)
        return inbox

    async def inbox(self, expression: Any = "*") -> Inbox:
        """The scenario's topic as one consumer of its group gets it."""
        return await self.listen(self.consumer(expression=expression))

    async def receive(self, count: int) -> list[Any]:
        return await (await self.inbox()).wait(count)


async def _stop(consumer: Any) -> None:
    await settled(consumer.stop())
