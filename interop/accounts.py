"""Accounts of a cluster under test, in both generations of RocketMQ's access control.

ACL 1.0 (4.x): the file conf/plain_acl.yml. ACL 2.0 (5.3 and later): the first account from
broker.conf, all others by requests. One table of accounts gives both, so that servers of Apache's
and ours get the same.

Source: RocketMQ 4.9.7 acl/plain/PlainPermissionManager, 5.5.0 auth/config/AuthConfig.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Final

from .apache import version_numbers
from .peer import Cluster
from .peers import open_cluster, parse_peer
from .process import PeerError
from .wire import Keys, WireClient

AUTH_CREATE_USER: Final = 3001
AUTH_CREATE_ACL: Final = 3006

LOOPBACK: Final = "127.0.0.1"
ACL_2_SINCE: Final = (5, 3)
ACL_1_UNTIL: Final = (5, 3, 3)
"""The first version without ACL 1.0."""

_PROVIDERS: Final = "org.apache.rocketmq.auth"


class Generation(StrEnum):
    """The generation of access control."""

    ACL_1 = "ACL 1.0"
    ACL_2 = "ACL 2.0"


@dataclass(frozen=True, slots=True)
class Grant:
    """One right of an account, or its denial.

    Attributes:
      resource: as in policies: "Topic:orders", "Group:*", "Cluster:*".
      actions: of ACL 2.0. ACL 1.0 knows Pub and Sub only.
      is_denied: the decision is Deny instead of Allow.
      sources: addresses and networks from which it holds; none: all. ACL 2.0 only.
      is_default: of the kind that counts where no other policy matches. In ACL 1.0 it is the
        default of all topics or groups, whatever the name.
    """

    resource: str
    actions: tuple[str, ...]
    is_denied: bool = False
    sources: tuple[str, ...] = ()
    is_default: bool = False


@dataclass(frozen=True, slots=True)
class Account:
    """One account.

    Attributes:
      keys: its name and secret, each longer than 6 characters, as ACL 1.0 demands.
      is_super: it may do everything.
      is_enabled: ACL 2.0 only.
      white_address: from there ACL 1.0 wants no signature.
    """

    keys: Keys
    grants: tuple[Grant, ...] = ()
    is_super: bool = False
    is_enabled: bool = True
    white_address: str = ""


SUPER: Final = Account(Keys("interop-super", "the-secret-of-super"), is_super=True)
"""The first account of every cluster; it makes the others, and signs between brokers."""


@dataclass(frozen=True)
class Accounts:
    """The accounts of one cluster.

    Attributes:
      generation: how they are stored.
      table: all accounts but `SUPER`.
      more_keys: of broker.conf, such as white lists of codes.
    """

    generation: Generation
    table: tuple[Account, ...]
    more_keys: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))


def generations_of(peer_name: str) -> tuple[Generation, ...]:
    """The generations that a peer's broker has.

    Raises: PeerError: the peer is unknown.
    """
    peer = parse_peer(peer_name)
    if peer.kind == "trocket":
        return tuple(Generation)
    if peer.kind == "external":
        return ()
    numbers = version_numbers(peer.version)
    found = []
    if (4, 4) <= numbers < ACL_1_UNTIL:
        found.append(Generation.ACL_1)
    if numbers >= ACL_2_SINCE:
        found.append(Generation.ACL_2)
    return tuple(found)


def open_with_accounts(
    name: str, folder: Path, accounts: Accounts, keys: Mapping[str, object]
) -> Cluster:
    """A stopped cluster whose broker has accounts once `start_with_accounts` has started it.

    Args:
      name: of a peer, as for `peers.open_cluster`.
      folder: holds all files of this run.
      keys: of broker.conf.
    Raises: PeerError: as `open_cluster`, or the peer lacks this generation.
    """
    if accounts.generation not in generations_of(name):
        raise PeerError(f"{name} has no {accounts.generation}")
    all_keys = {**keys, **accounts.more_keys}
    if accounts.generation is Generation.ACL_1:
        conf = folder / "conf"
        conf.mkdir(parents=True, exist_ok=True)
        file = conf / "plain_acl.yml"
        file.write_text(plain_acl_text(accounts.table), encoding="utf-8")
        all_keys["aclEnable"] = True
        if parse_peer(name).kind == "trocket":
            # Apache's finds the folder by ROCKETMQ_HOME.
            all_keys["aclConfigPath"] = conf
    else:
        all_keys |= acl_2_keys(SUPER.keys)
    return open_cluster(name, folder, all_keys)


def start_with_accounts(cluster: Cluster, accounts: Accounts) -> None:
    """Start a cluster of `open_with_accounts`, and create its accounts of ACL 2.0.

    Raises: PeerError: it does not start, or refuses an account.
    """
    cluster.start()
    if accounts.generation is Generation.ACL_2:
        with WireClient(cluster.broker_address, keys=SUPER.keys) as wire:
            create_accounts(wire, accounts.table)


def acl_2_keys(first: Keys) -> dict[str, object]:
    """Keys of broker.conf that switch ACL 2.0 on, with one super account for all of the cluster."""
    user = {"username": first.access_key, "password": first.secret_key}
    inner = {"accessKey": first.access_key, "secretKey": first.secret_key}
    return {
        "authenticationEnabled": True,
        "authorizationEnabled": True,
        "authenticationProvider": f"{_PROVIDERS}.authentication.provider"
        ".DefaultAuthenticationProvider",
        "authenticationMetadataProvider": f"{_PROVIDERS}.authentication.provider"
        ".LocalAuthenticationMetadataProvider",
        "authorizationProvider": f"{_PROVIDERS}.authorization.provider"
        ".DefaultAuthorizationProvider",
        "authorizationMetadataProvider": f"{_PROVIDERS}.authorization.provider"
        ".LocalAuthorizationMetadataProvider",
        "initAuthenticationUser": json.dumps(user, separators=(",", ":")),
        "innerClientAuthenticationCredentials": json.dumps(inner, separators=(",", ":")),
    }


def create_accounts(wire: WireClient, accounts: Iterable[Account]) -> None:
    """Create accounts of ACL 2.0 by requests.

    Args:
      wire: a connection to the broker that signs with a super account.
    Raises: PeerError: the broker refuses one.
    """
    for account in accounts:
        name = account.keys.access_key
        user = {
            "username": name,
            "password": account.keys.secret_key,
            "userType": "Super" if account.is_super else "Normal",
            "userStatus": "enable" if account.is_enabled else "disable",
        }
        wire.call(AUTH_CREATE_USER, {"username": name}, _json(user)).checked()
        if account.grants:
            subject = f"User:{name}"
            body = {"subject": subject, "policies": policies_of(account)}
            wire.call(AUTH_CREATE_ACL, {"subject": subject}, _json(body)).checked()


def policies_of(account: Account) -> list[dict[str, object]]:
    """The policies of an account as in the body of 3006: one for each kind of policy."""
    found: list[dict[str, object]] = []
    for kind in ("Custom", "Default"):
        entries = [
            {
                "resource": grant.resource,
                "actions": list(grant.actions),
                "sourceIps": list(grant.sources),
                "decision": "Deny" if grant.is_denied else "Allow",
            }
            for grant in account.grants
            if grant.is_default == (kind == "Default")
        ]
        if entries:
            found.append({"policyType": kind, "entries": entries})
    return found


def plain_acl_text(accounts: Iterable[Account]) -> str:
    """The file plain_acl.yml with `SUPER` and these accounts."""
    lines = ["globalWhiteRemoteAddresses:", "- 192.0.2.*", "accounts:"]
    for account in (SUPER, *accounts):
        lines += [
            f"- accessKey: {account.keys.access_key}",
            f"  secretKey: {account.keys.secret_key}",
            f"  whiteRemoteAddress: {account.white_address}",
            f"  admin: {str(account.is_super).lower()}",
        ]
        perms: dict[str, list[str]] = {"Topic": [], "Group": []}
        defaults = {"Topic": "DENY", "Group": "DENY"}
        for grant in account.grants:
            kind, _, resource = grant.resource.partition(":")
            if kind not in perms:
                continue
            perm = _perm(grant)
            if resource == "*" or grant.is_default:
                defaults[kind] = perm
            else:
                perms[kind].append(f"  - {resource}={perm}")
        for kind, name in (("Topic", "topic"), ("Group", "group")):
            lines.append(f"  default{kind}Perm: {defaults[kind]}")
            if perms[kind]:
                lines += [f"  {name}Perms:", *perms[kind]]
    return "\n".join(lines) + "\n"


def _perm(grant: Grant) -> str:
    """A right of ACL 1.0."""
    if grant.is_denied:
        return "DENY"
    return "|".join(name.upper() for name in ("Pub", "Sub") if name in grant.actions) or "DENY"


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
