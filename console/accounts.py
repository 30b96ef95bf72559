"""Log-in with accounts of the cluster: each session has a client with its account."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Final

import anyio
import msgspec
from anyio.abc import TaskGroup, TaskStatus

from ..client import AccessDeniedError, Admin, Client, ClientError, ServerError
from ..client.admin.asking import Answers, ask_all
from ..client.errors import RequestTimeoutError, copy_of
from ..operations.message_search.criteria import Mask
from ..remoting.request_codes import RequestCode
from ..remoting.signature import Credentials
from .account import Account
from .errors import PageError

CHECK_S: Final = 5.0
"""For a log-in: a good cluster needs some ms."""
_HEARTBEAT: Final = b'{"clientID":"trocket-console","producerDataSet":[],"consumerDataSet":[]}'
_IGNORED: Final = anyio.TASK_STATUS_IGNORED

OpenClient = Callable[[Credentials], Client]
"""Makes a client of the cluster with an account, which is not open yet."""


class OpenAccount(msgspec.Struct, frozen=True):
    """An account whose client is open until `close`."""

    account: Account
    close: Callable[[], None]


class Accounts:
    """The accounts of the people who are logged in.

    A secret is in the memory of a client only, and goes with it.

    Args:
      open_client: makes their clients.
      own: with the console's own account, by which brokers are found: a name server may say no
        account but an administrator's which there are.
      mask: hides what no one may see.
    """

    def __init__(self, open_client: OpenClient, own: Admin, mask: Mask) -> None:
        self._own = own
        self._open_client = open_client
        self._mask = mask
        self._group: TaskGroup | None = None
        self._open = 0

    def __len__(self) -> int:
        return self._open

    async def run(self, *, task_status: TaskStatus[None] = _IGNORED) -> None:
        """Keep clients open, until it is cancelled."""
        async with anyio.create_task_group() as self._group:
            task_status.started()
            await anyio.sleep_forever()

    async def open(self, access_key: str, secret_key: str) -> OpenAccount | None:
        """Open a client with an account; None: the cluster refuses it.

        Raises:
          PageError: the cluster takes any secret from this machine.
          ClientError: no server answers.
        """
        if not (access_key and secret_key):
            return None
        assert self._group is not None, "run() was not called"
        opened = await self._group.start(self._serve, Credentials(access_key, secret_key))
        if isinstance(opened, ClientError):
            raise copy_of(opened)
        if isinstance(opened, PageError):
            raise PageError(opened.status, opened.key, **opened.values)
        assert opened is None or isinstance(opened, OpenAccount)
        return opened

    async def _serve(
        self,
        credentials: Credentials,
        *,
        task_status: TaskStatus[OpenAccount | ClientError | PageError | None] = _IGNORED,
    ) -> None:
        outcome: ClientError | PageError | None = None
        with anyio.CancelScope() as scope:
            self._open += 1
            try:
                async with self._open_client(credentials) as client, Admin(client) as admin:
                    try:
                        is_right = await self._is_right(admin, credentials.access_key)
                    except (ClientError, PageError) as error:
                        outcome, is_right = error, False
                    if is_right:
                        async with anyio.create_task_group() as tasks:
                            account = Account(admin, self._mask)
                            await tasks.start(account.run)
                            task_status.started(OpenAccount(account, scope.cancel))
                        return
            finally:
                self._open -= 1
        if not scope.cancelled_caught:
            task_status.started(outcome)

    async def _brokers(self, admin: Admin) -> list[str]:
        """The addresses of the brokers. Raises: ClientError: no name server answers."""
        for each in (self._own, admin):
            try:
                view = await each.cluster()
            except AccessDeniedError:
                continue
            return [broker.address for broker in view.brokers if broker.address is not None]
        return []

    async def _is_right(self, admin: Admin, access_key: str) -> bool:
        """Whether a broker takes an account, and would not take it with any secret.

        Raises: PageError: each that takes it takes any secret. ClientError: no server answers.
        """
        with anyio.move_on_after(CHECK_S):
            answers = await _probe(admin.client, await self._brokers(admin))
            refused = [error for error in answers.errors.values() if isinstance(error, ServerError)]
            if not answers.values:
                if not refused and answers.errors:
                    raise next(iter(answers.errors.values()))
                return False
            stranger = Credentials(access_key, secrets.token_urlsafe(24))
            async with self._open_client(stranger) as client:
                others = await _probe(client, answers.values)
            if not any(isinstance(error, ServerError) for error in others.errors.values()):
                raise PageError(403, "accounts_unchecked")
            return True
        raise RequestTimeoutError("a check of the account", "the brokers", CHECK_S)


async def _probe(client: Client, addresses: Iterable[str]) -> Answers[str, object]:
    """Send brokers a heartbeat of no one: it needs no right, but a signature where they check it.

    Source: HeartbeatData of RocketMQ; a broker registers none of its producers and consumers.
    """

    def ask(address: str) -> Callable[[], Awaitable[object]]:
        return partial(client.request, address, RequestCode.HEART_BEAT, body=_HEARTBEAT)

    return await ask_all({address: ask(address) for address in addresses})
