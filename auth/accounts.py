"""Accounts: the table of users and access control lists of one server.

File: `AccountsInfo` as JSON, mode 0600, because passwords are the keys of signatures.

Java counterpart: RocketMQ 5.3.3 auth/…/manager/AuthenticationMetadataManagerImpl.java and
AuthorizationMetadataManagerImpl.java, which keep two RocksDB folders. Pure, but for the `save` it
is given.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from ..common.supervision import FailureLog, call_each
from ..remoting.bodies import AccountsInfo
from ..remoting.errors import RemoteProtocolError, RequestRefused
from ..remoting.steps import one_step
from ..store.state.state_file import Save, StateFile
from .conversion import acl_info, acl_of, check_user, refuse, user_info, user_of
from .model import (
    Acl,
    Policy,
    PolicyEntry,
    PolicyType,
    Resource,
    User,
    UserStatus,
    UserType,
)

logger = logging.getLogger(__name__)

ACCOUNTS_FILE: Final = "auth.json"
"""The file's name, in the broker's folder `config` and beside the name server's KV file."""

USERS_MAX: Final = 10_000
"""Users of one server. RocketMQ has no bound; each change writes the whole table, 150 bytes a
user."""

ENTRIES_MAX: Final = 1_000
"""Rules of one user. RocketMQ has no bound; a request without a cached decision looks at each."""

_UNSAVED: Final = (
    "the change is in force, and a restart forgets it unless a later save succeeds; it is tried "
    "again each second"
)


class Accounts:
    """The users and their rules. Not thread-safe: used from the server's one trio run.

    Args:
      save: writes the file, with mode 0600; None: nothing is saved.
      save_later: schedules a write, see `StateFile`.
      name: of the file.

    Attributes:
      file: the table's file.
      users: user by name, always the same dict; only this class changes it.
      acls: access control list by subject, likewise.
      version: increases with every change, so that caches know that they are old.
    """

    def __init__(
        self,
        save: Save | None = None,
        save_later: Callable[[StateFile], None] | None = None,
        name: str = ACCOUNTS_FILE,
    ) -> None:
        self.file = StateFile(
            name,
            "users and access control lists",
            save or _save_nothing,
            one_step(self.snapshot if save is not None else bytes),
            save_later,
            means=_UNSAVED,
        )
        self.users: dict[str, User] = {}
        self.acls: dict[str, Acl] = {}
        self.version = 0
        self._required: dict[str, User] = {}
        self._subscribers: list[Callable[[], object]] = []
        self._failures = FailureLog(logger)

    def __repr__(self) -> str:
        return f"<Accounts of {len(self.users)} users>"

    def subscribe(self, *subscribers: Callable[[], object]) -> None:
        """Call these after every change."""
        self._subscribers += subscribers

    # Users

    def get_user(self, username: str | None) -> User | None:
        """A user; None: there is none.

        Raises: RequestRefused: the name is blank.
        """
        if not (username or "").strip():
            refuse("username can not be blank")
        return self.users.get(username or "")

    def list_users(self, containing: str = "") -> list[User]:
        """The users whose names contain a text, sorted by name."""
        return [self.users[name] for name in sorted(self.users) if containing.strip() in name]

    def create_user(self, user: User) -> None:
        """Add a user.

        Raises: RequestRefused: it exists, a value is blank or too long, or the table is full.
        """
        check_user(user)
        if user.username in self.users:
            refuse("The user is existed")
        if len(self.users) >= USERS_MAX:
            refuse(f"The table is full: {USERS_MAX} users")
        self.users[user.username] = user
        self._changed()

    def update_user(
        self,
        username: str | None,
        *,
        password: str | None = None,
        user_type: UserType | None = None,
        user_status: UserStatus | None = None,
    ) -> None:
        """Change the values of a user that are not None; a blank password changes nothing.

        Raises: RequestRefused: there is no such user, or the password is too long.
        """
        old = self.get_user(username)
        if old is None:
            refuse("The user is not exist")
        has_password = bool((password or "").strip())
        new = replace(
            old,
            password=password if has_password and password is not None else old.password,
            user_type=user_type or old.user_type,
            user_status=user_status or old.user_status,
        )
        check_user(new)
        self.users[old.username] = new
        self._changed()

    def delete_user(self, username: str | None) -> None:
        """Remove a user and its access control list; one that does not exist is fine.

        Raises: RequestRefused: the name is blank.
        """
        user = self.get_user(username)
        if user is None:
            return
        del self.users[user.username]
        self.acls.pop(user.subject, None)
        self._changed()

    def ensure_super(self, username: str, password: str) -> None:
        """Create a super user of the configuration; an existing user stays as it is.

        `replace` keeps it.

        Raises: RequestRefused: a value is blank or too long.
        """
        user = User(username, password, UserType.SUPER)
        check_user(user)
        self._required[username] = user
        if username not in self.users:
            self.users[username] = user
            self._changed()

    # Access control lists

    def get_acl(self, subject: str) -> Acl | None:
        """The access control list of a subject; None: it has none.

        Raises: RequestRefused: there is no such user.
        """
        self._require_subject(subject, "The subject is not exist.")
        return self.acls.get(subject)

    def list_acls(self, subject_containing: str = "", resource_containing: str = "") -> list[Acl]:
        """The access control lists by parts of their subjects and of their rules' resources.

        Args:
          subject_containing: part of the subject; "": all.
          resource_containing: part of a rule's resource; other rules are left out, unless the
            subject contains it, which is RocketMQ's condition. "": all.
        Source: LocalAuthorizationMetadataProvider.listAcl.
        """
        wanted, part = subject_containing.strip(), resource_containing.strip()
        found: list[Acl] = []
        for subject in sorted(self.acls):
            acl = self.acls[subject]
            if wanted not in subject:
                continue
            if part and part not in subject:
                policies = [
                    Policy(each.type, tuple(e for e in each.entries if part in str(e.resource)))
                    for each in acl.policies
                ]
                acl = Acl(subject, tuple(each for each in policies if each.entries))
            if acl.policies:
                found.append(acl)
        return found

    def put_acl(self, acl: Acl) -> None:
        """Add rules to a user's; a rule for the same resource replaces the old one.

        RocketMQ's create and update are both this.

        Raises: RequestRefused: there is no such user, there are no rules, or too many.
        """
        if not acl.policies:
            refuse("The policies is empty.")
        self._require_subject(acl.subject, f"The subject of {acl.subject} is not exist.")
        old = self.acls.get(acl.subject)
        merged = acl if old is None else _merged(old, acl)
        count = sum(len(policy.entries) for policy in merged.policies)
        if count > ENTRIES_MAX:
            refuse(f"The entries are {count}, the limit is {ENTRIES_MAX}.")
        self.acls[acl.subject] = merged
        self._changed()

    def delete_acl(
        self,
        subject: str | None,
        policy_type: PolicyType | None = None,
        resource: Resource | None = None,
    ) -> None:
        """Remove the rule for a resource, or all rules of a user.

        Args:
          policy_type: of the rule; None: Custom.
          resource: None: all rules, of both types.
        Raises: RequestRefused: there is no such user, or it has no rules.
        """
        if subject is None:
            refuse("The subject is null.")
        self._require_subject(subject, "The subject is not exist.")
        acl = self.acls.get(subject)
        if acl is None:
            refuse("The acl is not exist.")
        policies: tuple[Policy, ...] = ()
        if resource is not None:
            wanted = policy_type or PolicyType.CUSTOM
            left = [
                Policy(each.type, tuple(e for e in each.entries if e.resource != resource))
                if each.type is wanted
                else each
                for each in acl.policies
            ]
            policies = tuple(each for each in left if each.entries)
        if policies:
            self.acls[subject] = Acl(subject, policies)
        else:
            del self.acls[subject]
        self._changed()

    # The whole table

    def snapshot(self) -> bytes:
        """All accounts as JSON: the text of the file, and what a slave copies. It has passwords."""
        return AccountsInfo(
            [user_info(self.users[name]) for name in sorted(self.users)],
            [acl_info(self.acls[subject]) for subject in sorted(self.acls)],
        ).to_body()

    def decode(self, text: bytes) -> int:
        """Replace the table by the file's.

        Returns: how many users there are.
        Raises: ValueError: the text is not a table of accounts; nothing is changed then.
        """
        users, acls = _read(text)
        self._take(users, acls)
        return len(users)

    def replace(self, text: bytes) -> bool:
        """Replace the table by a master's, but keep super users of this server's configuration.

        Args:
          text: from `snapshot`.
        Returns: whether that changed anything.
        Raises: ValueError: as `decode`.
        """
        users, acls = _read(text)
        users = self._required | users
        if users == self.users and acls == self.acls:
            return False
        self._take(users, acls)
        self._changed()
        return True

    def _take(self, users: Mapping[str, User], acls: Mapping[str, Acl]) -> None:
        for table, new in ((self.users, users), (self.acls, acls)):
            table.clear()
            table.update(new)  # type: ignore[arg-type]
        self.version += 1

    def _require_subject(self, subject: str, refusal: str) -> None:
        if subject.partition(":")[2] not in self.users:
            refuse(refusal)

    def _changed(self) -> None:
        self.version += 1
        self.file.changed()
        what, meaning = "following a change of accounts", "It may be followed late"
        call_each(self._subscribers, self._failures, what, meaning)


def _save_nothing(name: str, text: bytes) -> None:
    pass


def _merged(old: Acl, new: Acl) -> Acl:
    policies = {each.type: each for each in old.policies}
    for policy in new.policies:
        entries: dict[Resource, PolicyEntry] = {
            each.resource: each for each in (*old.entries(policy.type), *policy.entries)
        }
        policies[policy.type] = Policy(policy.type, tuple(entries.values()))
    return Acl(old.subject, tuple(policies.values()))


def _read(text: bytes) -> tuple[dict[str, User], dict[str, Acl]]:
    """The users and access control lists of a snapshot.

    Raises: ValueError: it is not one; the text names the fault, never a password.
    """
    try:
        info = AccountsInfo.from_body(text)
        users = {user.username: user for user in map(user_of, info.users)}
        for user in users.values():
            check_user(user)
        acls = {acl.subject: acl for acl in map(acl_of, info.acls)}
    except RemoteProtocolError as error:
        raise ValueError(error.reason) from error
    except RequestRefused as refusal:
        raise ValueError(refusal.remark) from refusal
    if len(users) != len(info.users):
        raise ValueError("two users have one name")
    return users, acls
