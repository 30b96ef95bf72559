"""Users and access control lists of brokers and name servers.

Each server has its own tables: a change is made on every master and slave that is addressed, as
mqadmin does, and answers come by server.

Java counterpart: createUser, updateUser, deleteUser, getUser, listUser, copyUser, createAcl,
deleteAcl, getAcl, listAcl, copyAcl of mqadmin.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, TypedDict, TypeVar, Unpack

from ...remoting.bodies import (
    AclInfo,
    Body,
    PolicyEntryInfo,
    PolicyInfo,
    UserInfo,
    acls_of,
    users_of,
)
from ...remoting.codec import RemotingCommand
from ...remoting.headers import (
    AclRequestHeader,
    DeleteAclRequestHeader,
    Header,
    ListAclsRequestHeader,
    ListUsersRequestHeader,
    UserRequestHeader,
)
from ...remoting.request_codes import RequestCode
from ..connection.client import reading_answer
from ..errors import ConfigurationError
from .asking import Answers, BrokerAt, Brokers, NotFoundError, ask_all, ask_each, each_of

T = TypeVar("T")

_USER: Final = "User:"


class Servers(TypedDict, total=False):
    """Which servers a verb asks; none of these: all masters and slaves.

    Attributes:
      broker: this one: a name (of its master then) or `host:port`.
      cluster: all masters and slaves of this cluster.
      name_servers: the name servers of the URL, which have accounts if they are trocket's.
    """

    broker: str | None
    cluster: str | None
    name_servers: bool


class AccountVerbs:
    """The part of `Admin` about users and access control lists."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._client = brokers.client

    # Users

    async def users(
        self,
        filter_text: str = "",
        **servers: Unpack[Servers],
    ) -> dict[str, list[UserInfo]]:
        """The users of each server, with their passwords if the server shows them to this client.

        trocket shows passwords to super users only; Apache to everybody who may list users.

        Args:
          filter_text: only users with this in their name.

        Returns: by broker (`name/id`: a slave) or name server; sorted by name.
        Raises: NotFoundError: no broker is called so. ConfigurationError: servers that cannot be
          meant. BrokersError: `partial` has what the others have. ServerError; ConnectError.
        """
        header = ListUsersRequestHeader(filter=filter_text or None)

        async def ask(address: str) -> list[UserInfo]:
            answer = await self._request(address, RequestCode.AUTH_LIST_USER, header)
            with reading_answer(address):
                return sorted(users_of(answer.body), key=lambda user: user.username or "")

        return await self._of_each("listing users", ask, servers)

    async def user(
        self,
        name: str,
        **servers: Unpack[Servers],
    ) -> dict[str, UserInfo]:
        """A user as each server has it that has it; passwords as in `users`.

        Raises: NotFoundError: none has it, or no broker is called so. The others as `users`.
        """
        header = UserRequestHeader(username=_named(name))

        async def ask(address: str) -> UserInfo | None:
            answer = await self._request(address, RequestCode.AUTH_GET_USER, header)
            with reading_answer(address):
                return UserInfo.from_body(answer.body) if answer.body else None

        answers = await self._ask(ask, servers)
        found = {server: user for server, user in answers.values.items() if user is not None}
        answers.check(f"user {name}", found, _who(servers))
        if not found:
            raise NotFoundError(f"there is no user {name!r}")
        return found

    async def create_user(
        self,
        name: str,
        password: str,
        *,
        user_type: str = "Normal",
        **servers: Unpack[Servers],
    ) -> list[str]:
        """Create a user.

        Args:
          name: also the access key of its clients.
          password: the secret key of its clients.
          user_type: "Normal", or "Super", who may do everything; only super users make those.

        Returns: the servers that did it.
        Raises: ServerError: a server refuses it, NO_PERMISSION if it has a user of this name.
          BrokersError: `partial` has the servers that did it. The others as `users`.
        """
        if not password.strip():
            raise ConfigurationError("the password is blank")
        body = UserInfo(username=_named(name), password=password, user_type=user_type)
        return await self._change(
            f"creating user {name}",
            RequestCode.AUTH_CREATE_USER,
            UserRequestHeader(username=name),
            body,
            **servers,
        )

    async def update_user(
        self,
        name: str,
        *,
        password: str | None = None,
        user_type: str | None = None,
        user_status: str | None = None,
        **servers: Unpack[Servers],
    ) -> list[str]:
        """Change a user; what is None stays.

        Args:
          password: its new password; its clients are refused until they use it.
          user_type: "Super" or "Normal".
          user_status: "enable" or "disable": then its clients are refused.

        Returns, Raises: as `create_user`; NO_PERMISSION too if the server has no such user.
        """
        if password is not None and not password.strip():
            raise ConfigurationError("the password is blank")
        if password is None and user_type is None and user_status is None:
            raise ConfigurationError("give a password, a type or a status")
        body = UserInfo(
            username=_named(name),
            password=password,
            user_type=user_type,
            user_status=user_status,
        )
        return await self._change(
            f"changing user {name}",
            RequestCode.AUTH_UPDATE_USER,
            UserRequestHeader(username=name),
            body,
            **servers,
        )

    async def delete_user(
        self,
        name: str,
        **servers: Unpack[Servers],
    ) -> list[str]:
        """Delete a user and its policies; a user that is not there is no error.

        Returns, Raises: as `create_user`.
        """
        return await self._change(
            f"deleting user {name}",
            RequestCode.AUTH_DELETE_USER,
            UserRequestHeader(username=_named(name)),
            **servers,
        )

    # Access control lists

    async def acls(
        self,
        subject_filter: str = "",
        resource_filter: str = "",
        **servers: Unpack[Servers],
    ) -> dict[str, list[AclInfo]]:
        """The access control lists of each server.

        Args:
          subject_filter: only those with this in their subject.
          resource_filter: only entries with this in their resource.

        Returns: by server; sorted by subject.
        Raises: as `users`.
        """
        header = ListAclsRequestHeader(
            subject_filter=subject_filter or None, resource_filter=resource_filter or None
        )

        async def ask(address: str) -> list[AclInfo]:
            answer = await self._request(address, RequestCode.AUTH_LIST_ACL, header)
            with reading_answer(address):
                return sorted(acls_of(answer.body), key=lambda acl: acl.subject or "")

        return await self._of_each("listing ACLs", ask, servers)

    async def acl(
        self,
        user: str,
        **servers: Unpack[Servers],
    ) -> dict[str, AclInfo]:
        """The policies of a user on each server that has the user; empty if it has no policies.

        Raises: ServerError: NO_PERMISSION: a server has no such user. The others as `users`.
        """
        header = AclRequestHeader(subject=_subject(user))

        async def ask(address: str) -> AclInfo:
            answer = await self._request(address, RequestCode.AUTH_GET_ACL, header)
            with reading_answer(address):
                if answer.body:
                    return AclInfo.from_body(answer.body)
                return AclInfo(subject=_subject(user), policies=[])

        return await self._of_each(f"the policies of user {name_of(user)}", ask, servers)

    async def set_acl(
        self,
        user: str,
        entries: Sequence[PolicyEntryInfo],
        *,
        policy_type: str = "Custom",
        **servers: Unpack[Servers],
    ) -> list[str]:
        """Add entries to a user's policy; an entry replaces that of the same resource.

        Args:
          user: its name.
          entries: see PolicyEntryInfo.
          policy_type: "Custom", or "Default": they decide where no custom entry matches.

        Returns, Raises: as `create_user`; NO_PERMISSION too if there is no such user, or an entry
          is not valid.
        """
        if not entries:
            raise ConfigurationError("give at least one entry")
        subject = _subject(user)
        policy = PolicyInfo(policy_type=policy_type, entries=list(entries))
        return await self._change(
            f"changing the policies of user {name_of(user)}",
            RequestCode.AUTH_UPDATE_ACL,
            AclRequestHeader(subject=subject),
            AclInfo(subject=subject, policies=[policy]),
            **servers,
        )

    async def delete_acl(
        self,
        user: str,
        resource: str | None = None,
        *,
        policy_type: str = "Custom",
        **servers: Unpack[Servers],
    ) -> list[str]:
        """Delete an entry of a user's policy, or all its policies.

        Args:
          user: its name.
          resource: whose entry, such as "Topic:a*"; None: all entries of both types.
          policy_type: of the entry: "Custom" or "Default".

        Returns, Raises: as `create_user`; NO_PERMISSION too if the user or its policies are not
          there.
        """
        if resource is not None and not resource.strip():
            raise ConfigurationError("the resource is blank")  # servers would delete all entries
        header = DeleteAclRequestHeader(
            subject=_subject(user),
            resource=resource,
            policy_type=None if resource is None else policy_type,
        )
        return await self._change(
            f"deleting policies of user {name_of(user)}",
            RequestCode.AUTH_DELETE_ACL,
            header,
            **servers,
        )

    # From server to server

    async def copy_accounts(
        self, source: str, target: str, names: Sequence[str] | None = None
    ) -> list[str]:
        """Copy users with their policies from one server to another.

        A user that the target has gets the source's password, type and status, and the source's
        entries are added to its policies. The client must be a super user of both servers.

        Args:
          source, target: brokers, by name or `host:port`, or `host:port` of name servers.
          names: of the users; None: all.

        Returns: names of the users that were copied.
        Raises: NotFoundError: the source has no such user. ConfigurationError: the source does not
          show its users' passwords. ServerError; ConnectError.
        """
        (found,) = (await self.users(broker=source)).values()
        users = {user.username: user for user in found if user.username}
        for name in names or ():
            if name not in users:
                raise NotFoundError(f"{source} has no user {name!r}")
        chosen = [users[name] for name in names] if names is not None else list(users.values())
        for user in chosen:
            if not user.password:
                raise ConfigurationError(
                    f"{source} does not show the password of user {user.username!r}: "
                    "use the account of a super user"
                )
        (there,) = (await self.users(broker=target)).values()
        known = {user.username for user in there}
        (acls,) = (await self.acls(broker=source)).values()
        policies = {acl.subject: acl for acl in acls}
        create, update = RequestCode.AUTH_CREATE_USER, RequestCode.AUTH_UPDATE_USER
        for user in chosen:
            header = UserRequestHeader(username=user.username)
            code = update if user.username in known else create
            await self._change("copying a user", code, header, user, broker=target)
            acl = policies.get(f"{_USER}{user.username}")
            if acl is not None:
                acl_header = AclRequestHeader(subject=acl.subject)
                code = RequestCode.AUTH_UPDATE_ACL
                await self._change("copying policies", code, acl_header, acl, broker=target)
        return [user.username or "" for user in chosen]

    async def _change(
        self,
        what: str,
        code: RequestCode,
        header: Header,
        body: Body | None = None,
        **servers: Unpack[Servers],
    ) -> list[str]:
        async def ask(address: str) -> None:
            await self._request(address, code, header, b"" if body is None else body.to_body())

        answers = await self._ask(ask, servers)
        answers.check(what, list(answers.values), _who(servers))
        return list(answers.values)

    async def _request(
        self, address: str, code: RequestCode, header: Header, body: bytes = b""
    ) -> RemotingCommand:
        return await self._client.request(address, code, header, body=body)

    async def _of_each(
        self, what: str, ask: Callable[[str], Awaitable[T]], servers: Servers
    ) -> dict[str, T]:
        """The answer of each chosen server. Raises: as `_ask`; BrokersError: one gave none."""
        answers = await self._ask(ask, servers)
        answers.check(what, answers.values, _who(servers))
        return answers.values

    async def _ask(self, ask: Callable[[str], Awaitable[T]], servers: Servers) -> Answers[str, T]:
        """Ask the chosen servers, each for itself. Raises: ConfigurationError; NotFoundError."""
        broker, cluster = servers.get("broker"), servers.get("cluster")
        is_name_servers = servers.get("name_servers", False)
        if (broker is not None) + (cluster is not None) + is_name_servers > 1:
            raise ConfigurationError("give a broker, a cluster or the name servers, not several")
        if is_name_servers:
            addresses = self._client.url.name_servers
            return await ask_all({address: partial(ask, address) for address in addresses})
        if broker is not None:
            chosen = [await self._brokers.one(broker)]
        else:
            chosen = each_of(await self._brokers.find(cluster))
            if not chosen:
                raise NotFoundError("the name server knows no broker")

        async def ask_one(at: BrokerAt) -> T:
            return await ask(at.address)

        return await ask_each(chosen, ask_one)


def name_of(user: str) -> str:
    """A user's name, from the name or from its subject `User:name`."""
    return user.removeprefix(_USER)


def _subject(user: str) -> str:
    return _USER + _named(name_of(user))


def _named(name: str) -> str:
    if not name.strip():
        raise ConfigurationError("the user's name is blank")
    return name


def _who(servers: Servers) -> str:
    return "name servers" if servers.get("name_servers") else "brokers"
