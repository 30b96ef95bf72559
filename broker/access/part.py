"""Access: who may ask the broker for what, by the accounts of either generation."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from ...auth.accounts import Accounts
from ...auth.need_tables import NEEDS_OF_BROKER
from ...auth.needs import Places
from ...auth.server_access import ServerAccess
from ...common.supervision import Supervisor
from ...remoting.channel import Processor
from ...remoting.signature import Credentials
from ..messages.stored_topic import topic_of_message
from ..part import AtCut, Foundation, Part, Processors, SavedFile, Serving
from ..tables.part import Tables

if TYPE_CHECKING:
    from ...auth.access_control import AccessControl
    from .plain_acl import PlainAclAccess


class Access(Part):
    """The accounts of one broker.

    Attributes:
      users: those of ACL 2.0, and the check of requests by them.
      plain_acl: those of ACL 1.0; None: aclEnable is false.
    """

    def __init__(self, foundation: Foundation, tables: Tables) -> None:
        self._config = config = foundation.config
        self._store = store = foundation.store
        self._clock = foundation.seams.clock
        places = Places(
            config.broker_cluster_name,
            partial(topic_of_message, store),
            tables.groups.contains,
            tables.topics.topic_config_table.__contains__,
        )
        self.users = ServerAccess(config, foundation.files, NEEDS_OF_BROKER, places)
        self.plain_acl: PlainAclAccess | None = None
        if config.acl_enable:
            from .plain_acl import PlainAclAccess  # needs PyYAML

            self.plain_acl = PlainAclAccess(config, foundation.address, places, clock=self._clock)
        self.saved = (SavedFile(file=self.users.accounts.file, at_cut=AtCut.KEPT),)

    @property
    def control(self) -> PlainAclAccess | AccessControl | None:
        """The check of requests; None: every client may do everything."""
        return self.plain_acl or self.users.control

    @property
    def super_account(self) -> Credentials | None:
        """An account that may do everything; None: nothing is checked, or there is no such one."""
        if self.plain_acl is not None:
            return self.plain_acl.super_account
        return self.users.super_account

    def secret(self, access_key: str) -> str | None:
        """What an account signs with; None: there is no such account, or it is disabled."""
        if self.plain_acl is not None:
            account = self.plain_acl.files.acl.accounts.get(access_key)
            return None if account is None else account.secret_key
        user = self.users.accounts.users.get(access_key)
        return user.password if user is not None and user.is_enabled else None

    def guard(self, processors: Mapping[int, Processor]) -> dict[int, Processor]:
        """The broker's table; each processor serves only what the check lets pass."""
        if self.plain_acl is not None:
            return self.plain_acl.guard(processors)
        return self.users.guard(processors)

    def load_tables(self) -> None:
        """See `Part`."""
        self.users.load(self._migrate if self._config.migrate_auth_from_v1_enabled else None)
        if self.plain_acl is not None:
            self.plain_acl.files.load()

    def processors(self, serving: Serving) -> Processors:
        """See `Part`."""
        return self.users.admin(is_slave=self._store.is_slave).processors

    async def start(self, services: Supervisor) -> None:
        """See `Part`."""
        if self.plain_acl is not None:
            services.start_soon("the watch of access control files", self.plain_acl.files.run)

    def _migrate(self, accounts: Accounts) -> None:
        from .plain_acl import migrate_files  # needs PyYAML

        migrate_files(self._config.acl_config_path, accounts, self._clock)
