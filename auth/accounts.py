"""Accounts: the table of users and access control lists of one server.

File: `AccountsInfo` as JSON, mode 0600, because passwords are the keys of signatures. The text of
each user and each list is kept until it changes, so that a change costs the event loop one of them
and a join.

Java counterpart: RocketMQ 5.3.3 auth/…/manager/AuthenticationMetadataManagerImpl.java and
AuthorizationMetadataManagerImpl.java, which keep two RocksDB folders. Pure, but for the `save` it
is given.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final, Generic, TypeVar

from ..common.steps import STEP_ITEMS, Steps, at_once, one_step
from ..common.supervision import FailureLog, call_each
from ..disk.state_file import Save, StateFile
from ..remoting.bodies import AccountsInfo, AclInfo, Body, UserInfo
from ..remoting.errors import RemoteProtocolError, RequestRefused
from .conversion import (
    PASSWORD_SIZE_ADVISED,
    acl_info,
    acl_of,
    check_new_name,
    check_user,
    refuse,
    user_info,
    user_of,
    why_unmatched,
)
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
"""Users of one server. RocketMQ has no bound; each change writes the whole table, 450 bytes a user
with three rules."""

ENTRIES_MAX: Final = 1_000
"""Rules of one user. RocketMQ has no bound; a request without a cached decision looks at each."""

_KEPT_PER_STEP: Final = 5_000
"""Kept strings that a step of a save collects: 2 ms."""

_KEPT_PER_NEW: Final = 20
"""Kept strings whose collection takes as long as the encoding of one rule or user."""

_UNSAVED: Final = (
    "the change is in force, and a restart forgets it unless a later save succeeds; it is tried "
    "again each second"
)

_ItemT = TypeVar("_ItemT", User, Acl)


class _Texts(Generic[_ItemT]):
    """The JSON strings of a table's items, each kept as long as its item is in the table.

    Args:
      table: item by name; an item is a frozen value, so its text never changes.
      info: the body of an item.
    """

    def __init__(self, table: Mapping[str, _ItemT], info: Callable[[_ItemT], Body]) -> None:
        self._table: Mapping[str, _ItemT] = table
        self._info: Callable[[_ItemT], Body] = info
        self._texts: dict[str, tuple[_ItemT, bytes]] = {}

    def has(self, name: str, item: _ItemT) -> bool:
        """Whether the text of an item is kept."""
        kept = self._texts.get(name)
        return kept is not None and kept[0] is item

    def of(self, name: str, item: _ItemT) -> bytes:
        """The text of an item, which may be another one than the table's of that name."""
        kept = self._texts.get(name)
        if kept is not None and kept[0] is item:
            return kept[1]
        text = self._info(item).to_body()
        if self._table.get(name) is item:
            self._texts[name] = (item, text)
        return text

    def remove(self, name: str) -> None:
        """Forget the text of a removed item."""
        self._texts.pop(name, None)

    def of_all(self, table: Mapping[str, _ItemT]) -> Steps[list[bytes]]:
        """The strings of all items of a copy of the table, sorted by name."""
        names = sorted(table)
        yield
        texts: list[bytes] = []
        work = 0
        for name in names:
            item = table[name]
            work += 1 if self.has(name, item) else _KEPT_PER_NEW * size_of(item)
            texts.append(self.of(name, item))
            if work >= _KEPT_PER_STEP:
                work = 0
                yield
        return texts


class Accounts:
    """The users and their rules. Not thread-safe: used from the server's one trio run.

    Args:
      save: writes the file, with mode 0600; None: nothing is saved.
      save_later: schedules a write, see `StateFile`.

    Attributes:
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
            self._snapshot_in_steps if save is not None else one_step(bytes),
            save_later,
            means=_UNSAVED,
        )
        self.users: dict[str, User] = {}
        self.acls: dict[str, Acl] = {}
        self._user_texts = _Texts(self.users, user_info)
        self._acl_texts = _Texts(self.acls, acl_info)
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
        """A user; None if there is none.

        Raises: RequestRefused: the name is blank.
        """
        if not (username or "").strip():
            refuse("username can not be blank")
        return self.users.get(username or "")

    def list_users(self, containing: str = "") -> list[User]:
        """The users whose names contain a string, sorted by name."""
        return [self.users[name] for name in sorted(self.users) if containing.strip() in name]

    def create_user(self, user: User) -> None:
        """Add a user.

        Raises: RequestRefused: it exists, a value is blank or too long, or the table is full.
        """
        check_user(user)
        check_new_name(user.username)
        if user.username in self.users:
            refuse("The user is existed")
        if len(self.users) >= USERS_MAX:
            refuse(f"The table is full: {USERS_MAX} users")
        self.users[user.username] = user
        _warn_of_password(user)
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
        if has_password:
            _warn_of_password(new)
        self.users[old.username] = new
        self._changed()

    def delete_user(self, username: str | None) -> None:
        """Remove a user and its access control list; one that does not exist is fine.

        Raises: RequestRefused: the name is blank.
        """
        user = self.get_user(username)
        if user is None:
            return
        self._remove_user(user.username)
        self._remove_acl(user.subject)
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
            refuse(f"{count} entries; the limit is {ENTRIES_MAX}.")
        for policy in acl.policies:
            for entry in policy.entries:
                _warn_of_rule(acl.subject, entry.resource)
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
            self._remove_acl(subject)
        self._changed()

    # The whole table

    def user_text(self, user: User) -> bytes:
        """The JSON of a user, with its password; of one of the table it is kept."""
        return self._user_texts.of(user.username, user)

    def acl_text(self, acl: Acl) -> bytes:
        """The JSON of an access control list; of one of the table it is kept."""
        return self._acl_texts.of(acl.subject, acl)

    def snapshot(self) -> bytes:
        """All accounts as JSON, the text of the file: an `AccountsInfo`. It has passwords."""
        return at_once(self._snapshot_in_steps())

    def _snapshot_in_steps(self) -> Steps[bytes]:
        users, acls = dict(self.users), dict(self.acls)
        yield
        user_texts = yield from self._user_texts.of_all(users)
        yield
        acl_texts = yield from self._acl_texts.of_all(acls)
        yield
        return b'{"users":[%b],"acls":[%b]}' % (b",".join(user_texts), b",".join(acl_texts))

    def decode(self, text: bytes) -> int:
        """Replace the table by the file's.

        Returns: how many users there are.
        Raises: ValueError: the text is not a table of accounts; nothing is changed then.
        """
        try:
            info = AccountsInfo.from_body(text)
        except RemoteProtocolError as error:
            raise ValueError(error.reason) from error
        users, acls = at_once(self._read(info.users, info.acls))
        self._take(users, acls)
        self.version += 1
        return len(users)

    def replace(self, users: Iterable[UserInfo], acls: Iterable[AclInfo]) -> Steps[bool]:
        """Replace the table by a master's, but keep super users of this server's configuration.

        The change is made in the last step, of which requests see nothing or all. It includes
        changes that were made between the steps: the table is the master's then.

        Args:
          users: the master's, with their passwords.
        Returns: whether that changed anything.
        Raises: ValueError: as `decode`; what the iterators raise. Nothing is changed then.
        """
        new_users, new_acls = yield from self._read(users, acls)
        yield
        if not self._take(self._required | new_users, new_acls):
            return False
        self._changed()
        return True

    def _read(
        self, user_infos: Iterable[UserInfo], acl_infos: Iterable[AclInfo]
    ) -> Steps[tuple[dict[str, User], dict[str, Acl]]]:
        """The users and access control lists of bodies; those that the table has are the same
        objects.

        Raises: ValueError: it is not one; the message names the fault, never a password.
        """
        users: dict[str, User] = {}
        acls: dict[str, Acl] = {}
        work = 0
        try:
            for each in user_infos:
                user = user_of(each)
                check_user(user)
                if user.username in users:
                    raise ValueError("two users have one name")
                known = self.users.get(user.username)
                users[user.username] = known if known is not None and known == user else user
                work += 1
                if work >= STEP_ITEMS:
                    work = 0
                    yield
            for listed in acl_infos:
                acl = acl_of(listed)
                old = self.acls.get(acl.subject)
                acls[acl.subject] = old if old is not None and old == acl else acl
                work += size_of(acl)
                if work >= STEP_ITEMS:
                    work = 0
                    yield
        except RequestRefused as refusal:
            raise ValueError(refusal.remark) from refusal
        return users, acls

    def _take(self, users: Mapping[str, User], acls: Mapping[str, Acl]) -> bool:
        """Make the tables these. Returns: whether that changed one; both compare by identity,
        which takes 1 ms where the comparison of 10,000 values takes 100 ms."""
        gone_users = [name for name in self.users if name not in users]
        gone_acls = [subject for subject in self.acls if subject not in acls]
        new_users = {name: user for name, user in users.items() if self.users.get(name) is not user}
        new_acls = {name: acl for name, acl in acls.items() if self.acls.get(name) is not acl}
        for name in gone_users:
            self._remove_user(name)
        for subject in gone_acls:
            self._remove_acl(subject)
        self.users.update(new_users)
        self.acls.update(new_acls)
        return bool(gone_users or gone_acls or new_users or new_acls)

    def _remove_user(self, name: str) -> None:
        del self.users[name]
        self._user_texts.remove(name)

    def _remove_acl(self, subject: str) -> None:
        self.acls.pop(subject, None)
        self._acl_texts.remove(subject)

    def _require_subject(self, subject: str, refusal: str) -> None:
        if subject.partition(":")[2] not in self.users:
            refuse(refusal)

    def _changed(self) -> None:
        self.version += 1
        self.file.changed()
        what, meaning = "following a change of accounts", "It may be followed late"
        call_each(self._subscribers, self._failures, what, meaning)


def _warn_of_password(user: User) -> None:
    """Warn that a password is short; RocketMQ takes any, so it is taken."""
    if len(user.password) < PASSWORD_SIZE_ADVISED:
        logger.warning(
            "the password of user %(user)s has %(size)d characters, so it can be found by trying "
            "with one signed request: give the user one of at least %(advised)d",
            {
                "user": user.username,
                "size": len(user.password),
                "advised": PASSWORD_SIZE_ADVISED,
            },
        )


def _warn_of_rule(subject: str, resource: Resource) -> None:
    """Warn that a rule can never match; RocketMQ takes any, so it is taken."""
    why = why_unmatched(resource)
    if why:
        logger.warning(
            "the rule of %(subject)s for %(resource)s never matches, because %(why)s: change or "
            "remove it",
            {"subject": subject, "resource": str(resource), "why": why},
        )


def _save_nothing(name: str, text: bytes) -> None:
    pass


def size_of(item: User | Acl) -> int:
    """The parts of an item, to which the time of its encoding is proportional."""
    if isinstance(item, User):
        return 1
    return 1 + sum(len(policy.entries) for policy in item.policies)


def _merged(old: Acl, new: Acl) -> Acl:
    policies = {each.type: each for each in old.policies}
    for policy in new.policies:
        entries: dict[Resource, PolicyEntry] = {
            each.resource: each for each in (*old.entries(policy.type), *policy.entries)
        }
        policies[policy.type] = Policy(policy.type, tuple(entries.values()))
    return Acl(old.subject, tuple(policies.values()))
