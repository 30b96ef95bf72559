"""A running console: what its pages share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import anyio

from ..client import Admin
from .account import Account
from .accounts import Accounts, OpenClient
from .audit_log import AuditLog
from .bodies.decoder import Decoder
from .clock import Clock
from .login import Logins
from .masks import Masks
from .settings import ConsoleSettings
from .stopped import KnownFindings
from .streams import Streams


class Console:
    """What all pages of a console share; `running` makes one.

    Attributes:
      settings: as it was started.
      account: the console's own account of the cluster.
      accounts: those of people; None: all have the console's.
      logins: who people are.
      masks: what is hidden from all of them.
      audit: what they changed.
      decoder: of bodies; None: there is none.
      clock: of a broker under test; None: there is none.
      streams: the open event streams.
    """

    def __init__(
        self,
        settings: ConsoleSettings,
        admin: Admin,
        audit: AuditLog,
        decoder: Decoder | None = None,
        clock: Clock | None = None,
        open_client: OpenClient | None = None,
    ) -> None:
        self.settings = settings
        self.audit = audit
        self.decoder = decoder
        self.clock = clock
        self.masks = Masks(settings.masks)
        self.streams = Streams()
        self.accounts = None
        if settings.cluster_accounts:
            assert open_client is not None, "accounts need open_client"
            self.accounts = Accounts(open_client, admin, self.masks.message)
        self.logins = Logins(settings, self.accounts)
        stopped = settings.stopped
        known = None if stopped is None else KnownFindings(stopped.findings)
        self.account = Account(admin, self.masks.message, known)

    def login_address(self, port: int) -> str:
        """The address to open, with the token if there is one.

        Args:
          port: where it listens.
        """
        settings, token = self.settings, self.logins.token
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        page = f"login?token={token}" if token else ""
        return f"http://{host}:{port}{settings.prefix}/{page}"

    @classmethod
    @asynccontextmanager
    async def running(
        cls,
        settings: ConsoleSettings,
        admin: Admin,
        clock: Clock | None = None,
        open_client: OpenClient | None = None,
    ) -> AsyncIterator[Console]:
        """A console whose background tasks run inside the block.

        Args:
          admin: open.
          clock: of a broker under test; None: there is none.
          open_client: makes clients for people's accounts, where the settings ask for them.

        Raises: ConfigurationError: a file of the settings is wrong. OSError: one cannot be opened.
        """
        audit = AuditLog(settings.audit_log, admin.client.wall_ms)
        try:
            async with AsyncExitStack() as stack:
                decoder = None
                if settings.decoder:
                    decoder = await stack.enter_async_context(Decoder(settings.decoder))
                console = cls(settings, admin, audit, decoder, clock, open_client)
                async with anyio.create_task_group() as tasks:
                    await tasks.start(console.account.run)
                    if console.accounts is not None:
                        await tasks.start(console.accounts.run)
                    tasks.start_soon(console.logins.run)
                    yield console
                    tasks.cancel_scope.cancel()
        finally:
            audit.close()
