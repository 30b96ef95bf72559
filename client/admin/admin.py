"""`Admin`: what an administrator can ask and do.

Java counterpart: DefaultMQAdminExt, mqadmin.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self, Unpack

from ..client import Client
from ..options import ClientOptions
from ..producer import own_client
from .filters import FilterVerbs
from .messages import MessageVerbs
from .offsets import OffsetVerbs


class Admin(OffsetVerbs, MessageVerbs, FilterVerbs):
    """Administers a cluster: ours, or Apache's from 4.9 on.

    Use: `async with Admin("rocketmq://127.0.0.1:9876") as admin:`, under trio or asyncio.

    Names of topics and groups are without the client's namespace. A verb that asks several brokers
    gives what all of them have; when some fail it raises BrokersError, which names them and has the
    rest in `partial`. A request that a broker does not serve (yet) is a ServerError with
    REQUEST_CODE_NOT_SUPPORTED.

    Args:
      client: a URL, or an open Client that is shared with others.
      options: see ClientOptions; only with a URL.

    Raises: ConfigurationError: an argument cannot be right.
    """

    def __init__(self, client: str | Client, **options: Unpack[ClientOptions]) -> None:
        self._is_own_client = isinstance(client, str)
        super().__init__(own_client(client, options))
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            if self._is_own_client:
                await stack.enter_async_context(self._client)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._stack.aclose()
