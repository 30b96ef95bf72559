"""ServerAccess: the access control of one server: its accounts, its file, its gate.

The broker and the name server create one each. Where authenticationEnabled is false it checks
nothing, and the server's processors stay as they are.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping

from ..disk.state_file import StateFile
from ..disk.state_files import StateFiles
from ..remoting.channel import Processor
from ..remoting.signature import Credentials
from .access_control import AccessControl
from .accounts import Accounts
from .admin import AuthAdmin
from .config import AccessConfig, read_access
from .gate import guarded
from .needs import Need, Places

logger = logging.getLogger(__name__)


class ServerAccess:
    """The accounts of one server, and the check of its requests.

    Args:
      config: the server's keys.
      files: holds the accounts' file, which must be one of its secret ones.
      needs: of the server's request codes.
      places: see `Places`.

    Attributes:
      accounts: loaded by `load`; empty before.
      control: checks requests; None: authenticationEnabled is false.
      credentials: the account for the server's own requests; None: they are not signed.
    """

    def __init__(
        self,
        config: AccessConfig,
        files: StateFiles,
        needs: Mapping[int, Need],
        places: Places,
    ) -> None:
        access = read_access(config)
        self._files = files
        self._access = access
        self.places = places
        later: Callable[[StateFile], None] | None = files.later if files.may_put_off else None
        self.accounts = Accounts(files.save, later)
        self.credentials = access.inner
        self.control: AccessControl | None = None
        if access.is_enabled:
            self.control = AccessControl(self.accounts, needs, access.rules, places)

    @property
    def copied_accounts(self) -> Accounts | None:
        """The accounts that a slave copies from its master; None: it cannot prove who it is."""
        return self.accounts if self.control is not None and self.credentials else None

    def load(self, add: Callable[[Accounts], object] | None = None) -> None:
        """Read the accounts' file, and create the super users of the configuration.

        Args:
          add: adds further accounts, such as those of ACL 1.0; None if there are none.
        Raises:
          CorruptRecordError: the file is damaged, and so is its `.bak`. A server with a
            part of its accounts would refuse clients, or serve the wrong ones.
          StoreIOError: the file could not be read.
        """
        self._files.load(self.accounts.file.name, self.accounts.decode)
        if self.control is None:
            return
        for each in self._access.super_users:
            self.accounts.ensure_super(each.access_key, each.secret_key)
        if add is not None:
            add(self.accounts)
        self._warn_of_differences()
        if self.accounts.users:
            logger.info(
                "requests are checked by the accounts of %(users)d users",
                {"users": len(self.accounts.users)},
            )
        else:
            logger.warning(
                "there is no user, so every request is refused: set initAuthenticationUser to the "
                "first super user, and start the server again"
            )

    def _warn_of_differences(self) -> None:
        """Warn where a user that was there already is not as the configuration has it."""
        inner = self._access.inner
        for key, configured, means in (
            (
                "initAuthenticationUser",
                self._access.init_user,
                "it stays so; name another user there if no super user is left",
            ),
            (
                "innerClientAuthenticationCredentials",
                inner,
                "this server's own requests may be refused: change the user, or the key",
            ),
        ):
            if configured is None:
                continue
            user = self.accounts.users[configured.access_key]
            faults = [
                fault
                for fault, is_so in (
                    ("is disabled", not user.is_enabled),
                    ("is not a super user", not user.is_super),
                    # The password of the first user is expected to change.
                    (
                        "has another password",
                        configured is inner and user.password != configured.secret_key,
                    ),
                )
                if is_so
            ]
            if faults:
                logger.warning(
                    "the user %(user)s of %(key)s %(faults)s, and %(means)s",
                    {
                        "user": configured.access_key,
                        "key": key,
                        "faults": " and ".join(faults),
                        "means": means,
                    },
                )

    def admin(self, *, is_slave: bool = False) -> AuthAdmin:
        """The processors of users and access control lists.

        Args:
          is_slave: the accounts are copies of a master's.
        """
        control = self.control
        if control is None:
            return AuthAdmin(None, requester=lambda request: None, start="")
        return AuthAdmin(
            self.accounts,
            requester=control.user_of,
            start=secrets.token_hex(8),
            is_slave=is_slave,
        )

    @property
    def super_account(self) -> Credentials | None:
        """An account that may do everything, for this process's requests to its own server; None:
        the server checks nothing, or has no super user."""
        if self.control is None:
            return None
        users = self.accounts.users.values()
        found = next((user for user in users if user.is_super and user.is_enabled), None)
        return None if found is None else Credentials(found.username, found.password)

    def guard(self, processors: Mapping[int, Processor]) -> dict[int, Processor]:
        """The server's table, in which each processor serves only requests that pass the check."""
        if self.control is None:
            return dict(processors)
        return guarded(processors, self.control.check)
