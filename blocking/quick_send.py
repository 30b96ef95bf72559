"""A send without a task: for the usual case, in which nothing has to be waited for but the answer.

A task, its context, and two events cost a blocking `send` more than its way between the threads.
What is not usual (an unknown route, no connection, interceptors, an answer that is not plainly
SEND_OK) goes the async producer's own way.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

from ..client.errors import ClientError, ClosedError
from ..client.message import Message, MessageQueue, SendResult
from ..client.outgoing import Outgoing
from ..client.producer import Producer as AsyncProducer
from ..client.producer import Selector
from ..client.send_options import STORED
from ..remoting.codec import RemotingCommand
from ..remoting.response_codes import ResponseCode

OnEnd: TypeAlias = Callable[[SendResult | None, Exception | None], None]
"""Called once, with the one or the other; must not raise."""

Spawn: TypeAlias = Callable[[Coroutine[Any, Any, None]], None]


class QuickSend:
    """One message on its way.

    Lifecycle: `begin` once, in the loop.

    Args:
      inner: open.
      spawn: runs a task for what is not usual.
      on_end: told how it ended.
    """

    __slots__ = (
        "_chosen",
        "_fixed",
        "_inner",
        "_on_end",
        "_outgoing",
        "_queue",
        "_selector",
        "_sent_s",
        "_spawn",
        "_timeout_s",
    )

    _outgoing: Outgoing
    _fixed: MessageQueue | None
    _chosen: MessageQueue
    _sent_s: float

    def __init__(
        self,
        inner: AsyncProducer,
        queue: MessageQueue | None,
        selector: Selector | None,
        timeout_s: float | None,
        spawn: Spawn,
        on_end: OnEnd,
    ) -> None:
        self._inner = inner
        self._queue = queue
        self._selector = selector
        self._timeout_s = inner.client.timeout_s if timeout_s is None else timeout_s
        self._spawn = spawn
        self._on_end = on_end

    def begin(self, message: Message) -> bool:
        """Put the message on its way; False: something would have to be waited for first.

        Raises: as `Producer.send`; `on_end` is not called then.
        """
        inner = self._inner
        client = inner.client
        client.check_open()
        outgoing = inner._packer.message(message)
        info = client.known_publish_info(outgoing.topic)
        if info is None:
            return False
        self._fixed = inner._fixed_queue(outgoing, info, self._queue, self._selector)
        chosen = self._fixed or inner._select(info, None)
        address = client.broker_address(chosen.broker_name)
        connection = client.open_connection(address) if address else None
        if connection is None or connection.is_backed_up:
            return False
        self._outgoing, self._chosen = outgoing, chosen
        opaque = client.next_opaque()
        self._sent_s = self._inner.client.now_s()
        connection.submit(outgoing.encode(chosen, opaque), opaque, self._on_answer, self._timeout_s)
        return True

    def _on_answer(self, answer: RemotingCommand | ClientError) -> None:
        if isinstance(answer, RemotingCommand) and answer.code == ResponseCode.SUCCESS:
            self._succeed(answer)
        else:
            self._spawn(self._go_on(answer))

    def _succeed(self, answer: RemotingCommand) -> None:
        self._inner._note_success(
            self._chosen.broker_name, self._sent_s, self._inner.client.now_s()
        )
        try:
            result = self._outgoing.result(answer, self._chosen)
        except ClientError as error:
            self._on_end(None, error)
        else:
            self._on_end(result, None)

    async def _go_on(self, answer: RemotingCommand | ClientError) -> None:
        result: SendResult | None = None
        # What stays if this task is cancelled.
        failure: Exception | None = ClosedError("the producer was closed before it was confirmed")
        try:
            result = await self._after(answer)
            failure = None
        except Exception as error:  # noqa: BLE001 - told to whoever sent
            failure = error
        finally:
            self._on_end(result, failure)

    async def _after(self, answer: RemotingCommand | ClientError) -> SendResult:
        """What `Producer.send` does after a first try that was not plainly confirmed."""
        inner, chosen = self._inner, self._chosen
        now_s = inner.client.now_s()
        if isinstance(answer, RemotingCommand) and answer.code in STORED:
            inner._note_success(chosen.broker_name, self._sent_s, now_s)
        left_s = self._timeout_s - (now_s - self._sent_s)
        return await inner._go_on(self._outgoing, self._fixed, chosen, answer, self._sent_s, left_s)
