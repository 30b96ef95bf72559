"""Migration: accounts of ACL 1.0 become users and rules of ACL 2.0.

    1.0                             2.0
    admin: true                     a super user
    PUB, SUB, PUB|SUB of a topic    Custom rule: Allow Pub / Sub, Get / Pub, Sub, Get
    DENY of a topic                 Custom rule: Deny All
    the same of a group             the same
    default permissions             Default rules for Topic:* and Group:*
    (each account)                  Custom rule: Allow Pub on RMQ_SYS_TRACE_TOPIC
    white addresses                 nothing: 2.0 accepts no request without a signature

Get is added to Sub because consumers look up offsets, which needs nothing in 1.0. It is not added
to Pub alone: in 2.0 it lets an account read messages. Pure.

Java counterpart: auth/migration/AuthMigrator.java of 5.3.2. There a permission that is misspelled,
which means DENY in 1.0, becomes Allow All; and a client's traces are refused afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from ..common.topic_names import RETRY_TOPIC_PREFIX, TRACE_TOPIC
from ..remoting.bodies import PlainAccessConfig
from ..remoting.errors import RequestRefused
from .accounts import Accounts
from .model import (
    Acl,
    Action,
    Decision,
    Policy,
    PolicyEntry,
    PolicyType,
    Resource,
    ResourcePattern,
    ResourceType,
    User,
    UserType,
)
from .plain_acl import Perm, PlainAccount, PlainAcl, perm_of


@dataclass(frozen=True, slots=True)
class Migrated:
    """One account of 2.0, made from one of 1.0.

    Attributes:
      acl: its rules; None: a super user needs none.
      remarks: what it means in 2.0 that it did not in 1.0, a line each.
    """

    user: User
    acl: Acl | None
    remarks: tuple[str, ...] = ()


@dataclass(slots=True)
class MigrationReport:
    """What a migration did.

    Attributes:
      created: names of the new users.
      existing: names of accounts whose users were there already, and stay as they were.
      refused: names of accounts that could not be created, and why.
      remarks: what is different now, a line each.
    """

    created: list[str] = field(default_factory=list)
    existing: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)


def migrate(acl: PlainAcl, accounts: Accounts) -> MigrationReport:
    """Create users and rules for the accounts of files; users that exist stay as they are.

    Args:
      acl: the accounts of 1.0.
      accounts: those of 2.0; it is changed.
    """
    report = MigrationReport()
    addresses = [each.text for each in acl.white_addresses if each.text.strip()]
    if addresses:
        report.remarks.append(
            f"the global white addresses {', '.join(addresses)} are not migrated: requests from "
            "there need a signature now"
        )
    configs = {config.access_key: config for config in acl.configs}
    with accounts.file.saving_once():
        for name, account in acl.accounts.items():
            if name in accounts.users:
                report.existing.append(name)
                continue
            _create(migrate_account(account, configs[name]), accounts, report)
    return report


def _create(migrated: Migrated, accounts: Accounts, report: MigrationReport) -> None:
    name = migrated.user.username
    try:
        accounts.create_user(migrated.user)
        if migrated.acl is not None:
            accounts.put_acl(migrated.acl)
    except RequestRefused as refusal:
        if name in accounts.users:
            accounts.delete_user(name)  # one without its rules would have other rights
        report.refused[name] = refusal.remark
        return
    report.created.append(name)
    report.remarks += migrated.remarks


def migrate_account(account: PlainAccount, config: PlainAccessConfig) -> Migrated:
    """The user and rules for one account.

    Args:
      config: the same account as its file spells it, which tells a default DENY from none.
    """
    remarks = list(_remarks(account))
    kind = UserType.SUPER if account.is_admin else UserType.NORMAL
    user = User(account.access_key, account.secret_key, kind)
    if user.is_super:
        return Migrated(user, None, tuple(remarks))
    custom = {
        resource: _entry(resource, perm)
        for name, perm in account.perms.items()
        if (resource := _resource(name)) is not None
    }
    custom.setdefault(_TRACES, PolicyEntry(_TRACES, (Action.PUB,), decision=Decision.ALLOW))
    defaults = [
        _entry(Resource(kind, "", ResourcePattern.ANY), perm_of(text))
        for kind, text in (
            (ResourceType.TOPIC, config.default_topic_perm),
            (ResourceType.GROUP, config.default_group_perm),
        )
        if text and text.strip()
    ]
    policies = [Policy(PolicyType.CUSTOM, tuple(custom.values()))]
    if defaults:
        policies.append(Policy(PolicyType.DEFAULT, tuple(defaults)))
    return Migrated(user, Acl(user.subject, tuple(policies)), tuple(remarks))


_TRACES: Final = Resource(ResourceType.TOPIC, TRACE_TOPIC)


def _resource(name: str) -> Resource | None:
    """The resource of a listed name; None: no topic or group has it, but a rule would have more."""
    if "*" in name or not name.strip():
        return None
    if name.startswith(RETRY_TOPIC_PREFIX):
        return Resource(ResourceType.GROUP, name[len(RETRY_TOPIC_PREFIX) :])
    return Resource(ResourceType.TOPIC, name)


def _entry(resource: Resource, perm: Perm) -> PolicyEntry:
    if perm & Perm.DENY:
        return PolicyEntry(resource, (Action.ALL,), decision=Decision.DENY)
    pub = (Action.PUB,) if perm & Perm.PUB else ()
    sub = (Action.SUB, Action.GET) if perm & Perm.SUB else ()
    return PolicyEntry(resource, (*pub, *sub), decision=Decision.ALLOW)


def _remarks(account: PlainAccount) -> Iterator[str]:
    name = account.access_key
    if account.white_addresses.text.strip():
        yield (
            f"{name}: its white address {account.white_addresses.text} is not migrated: requests "
            "from there need a signature and rights now"
        )
    if account.is_admin:
        if account.perms:
            yield (
                f"{name}: as a super user it may use every topic and group; its listed "
                "permissions bound it in 1.0"
            )
        return
    for listed, perm in account.perms.items():
        shown = listed.replace(RETRY_TOPIC_PREFIX, "group ", 1)
        if _resource(listed) is None:
            yield f"{name}: {shown} is left out: no topic or group has such a name"
            continue
        is_group = listed.startswith(RETRY_TOPIC_PREFIX)
        default = account.default_group_perm if is_group else account.default_topic_perm
        more = default & ~perm & (Perm.PUB | Perm.SUB)
        if not perm & Perm.DENY and more:
            yield (
                f"{name}: the default permission gives it {more.name} on {shown}, too, which the "
                "listed one did not in 1.0: add a rule that denies it"
            )
