"""Administration of accounts: AUTH_CREATE_USER (3001) to AUTH_LIST_ACL (3010).

Broker and name server have the same processors. They give passwords to super users only: RocketMQ
gives them to everybody who may list users, though a password is the key of its user's signatures.

Without accounts the values of a request are checked, and then it is refused, as RocketMQ does.

Java counterpart: AdminBrokerProcessor.createUser and the like of 5.3.3; the answers are recorded
from 5.5.0. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final, TypeVar

from ..common.steps import Steps, at_once
from ..disk.until_saved import until_saved
from ..remoting.bodies import AclInfo, Body, UserInfo
from ..remoting.channel import Answer, Channel, Deferred, Processor, answer_of
from ..remoting.codec import RemotingCommand
from ..remoting.errors import RemoteProtocolError, RequestRefused
from ..remoting.headers import (
    AccountsResponseHeader,
    AclRequestHeader,
    DeleteAclRequestHeader,
    ListAclsRequestHeader,
    ListUsersRequestHeader,
    UserRequestHeader,
    decode,
    encode_header,
)
from ..remoting.request_codes import RequestCode
from ..remoting.response_codes import NOT_SET, ResponseCode
from .accounts import Accounts
from .conversion import acl_of, refuse, user_info, user_of
from .model import PolicyType, Resource, User, UserStatus, UserType, parse_subject

ACCOUNTS_OFF: Final = (
    "this server has no accounts: set authenticationEnabled=true and initAuthenticationUser in its "
    "configuration file, and start it again"
)
"""The refusal of what needs accounts; RocketMQ's text says only that an error occurred."""

_SHOWN_CHARS_MAX: Final = 64  # of a refused value

_STEP_SIZE: Final = 16 * 1024
"""Bytes of users or lists per step: 2 ms, unless their strings are kept."""

_BodyT = TypeVar("_BodyT", bound=Body)
_ItemT = TypeVar("_ItemT")
_EnumT = TypeVar("_EnumT", bound=Enum)


class AuthAdmin:
    """The processors of 3001 to 3010.

    Args:
      accounts: the server's; None: it has none.
      requester: the user whose signature a request has; None: it has no valid one.
      start: a string that is another one at each start of the server; slaves get it.
      is_slave: the accounts are copies of a master's. mqadmin makes each change on every broker of
        a cluster, and the copy may bring it first, so what is done already is no error.

    Attributes:
      processors: by request code.
    """

    def __init__(
        self,
        accounts: Accounts | None,
        *,
        requester: Callable[[RemotingCommand], User | None],
        start: str,
        is_slave: bool = False,
    ) -> None:
        self._accounts = accounts
        self._requester = requester
        self._start = start
        self._is_slave = is_slave
        self.processors: dict[RequestCode, Processor] = {
            RequestCode.AUTH_CREATE_USER: self._create_user,
            RequestCode.AUTH_UPDATE_USER: self._update_user,
            RequestCode.AUTH_DELETE_USER: self._delete_user,
            RequestCode.AUTH_GET_USER: self._get_user,
            RequestCode.AUTH_LIST_USER: self._list_users,
            RequestCode.AUTH_CREATE_ACL: self._put_acl,
            RequestCode.AUTH_UPDATE_ACL: self._put_acl,
            RequestCode.AUTH_DELETE_ACL: self._delete_acl,
            RequestCode.AUTH_GET_ACL: self._get_acl,
            RequestCode.AUTH_LIST_ACL: self._list_acls,
        }

    def _table(self) -> Accounts:
        """The accounts. Raises: RequestRefused: SYSTEM_ERROR if the server has none."""
        if self._accounts is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, ACCOUNTS_OFF)
        return self._accounts

    def _is_super(self, request: RemotingCommand) -> bool:
        user = self._requester(request)
        return user is not None and user.is_super

    def _saved(self, request: RemotingCommand) -> Deferred:
        """The answer once the accounts are saved."""
        file = self._table().file

        async def run() -> RemotingCommand:
            await until_saved(file)
            return request.answer(remark=NOT_SET)

        return Deferred(run)

    # Users

    def _create_user(self, request: RemotingCommand, channel: Channel) -> Answer:
        info = _user_of_request(request)
        _known("userType", UserType, info.user_type)
        _known("userStatus", UserStatus, info.user_status)
        user = user_of(info)
        table = self._table()
        if user.is_super and not self._is_super(request):
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR, "The super user can only be create by super user"
            )
        if not (self._is_slave and table.users.get(user.username) == user):
            table.create_user(user)
        return self._saved(request)

    def _update_user(self, request: RemotingCommand, channel: Channel) -> Answer:
        info = _user_of_request(request)
        user_type = _known("userType", UserType, info.user_type)
        user_status = _known("userStatus", UserStatus, info.user_status)
        table = self._table()
        text = "The super user can only be update by super user"
        if user_type is UserType.SUPER and not self._is_super(request):
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, text)
        old = table.get_user(info.username)
        if old is not None and old.is_super and not self._is_super(request):
            refuse(text)
        table.update_user(
            info.username, password=info.password, user_type=user_type, user_status=user_status
        )
        return self._saved(request)

    def _delete_user(self, request: RemotingCommand, channel: Channel) -> Answer:
        name = decode(UserRequestHeader, request.ext_fields).username
        if not (name or "").strip():
            refuse("username can not be blank")
        table = self._table()
        user = table.get_user(name)
        if user is not None and user.is_super and not self._is_super(request):
            refuse("The super user can only be update by super user")
        table.delete_user(name)
        return self._saved(request)

    def _get_user(self, request: RemotingCommand, channel: Channel) -> Answer:
        name = decode(UserRequestHeader, request.ext_fields).username
        if not (name or "").strip():
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, "The username is blank")
        user = self._table().get_user(name)
        body = b"" if user is None else self._encode_for(request)(user)
        return request.answer(remark=NOT_SET, body=body)

    def _list_users(self, request: RemotingCommand, channel: Channel) -> Answer:
        header = decode(ListUsersRequestHeader, request.ext_fields)
        table = self._table()
        version = self._version_for(request, header.accounts_version)
        if version is not None and version == header.accounts_version:
            return at_once(_list_steps(request, (), table.user_text, version))  # the slave has them
        users = table.list_users(header.filter or "")
        return answer_of(_list_steps(request, users, self._encode_for(request), version))

    def _encode_for(self, request: RemotingCommand) -> Callable[[User], bytes]:
        """What the requester may know of a user, as JSON."""
        return self._table().user_text if self._is_super(request) else _without_password

    # Access control lists

    def _put_acl(self, request: RemotingCommand, channel: Channel) -> Answer:
        header = decode(AclRequestHeader, request.ext_fields)
        info = _body(request, AclInfo.from_request) if request.body else AclInfo()
        if not info.policies:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "The body of acl is null")
        info.subject = parse_subject(info.subject) or parse_subject(header.subject)
        if info.subject is None:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"the subject {_shown(header.subject)} is not User: and a user's name",
            )
        for policy in info.policies:
            _known("policyType", PolicyType, policy.policy_type)
        info.policies = [policy for policy in info.policies if policy.entries]
        acl = acl_of(info)
        self._table().put_acl(acl)
        return self._saved(request)

    def _delete_acl(self, request: RemotingCommand, channel: Channel) -> Answer:
        header = decode(DeleteAclRequestHeader, request.ext_fields)
        policy_type = _known("policyType", PolicyType, header.policy_type)
        resource = Resource.parse(header.resource)
        if resource is None and (header.resource or "").strip():
            # RocketMQ would delete all entries.
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER,
                f"the resource {_shown(header.resource)} is not *, or Topic:, Group:, Cluster: or "
                "Namespace: and a name",
            )
        subject = parse_subject(header.subject)
        if subject is None:
            refuse("The subject is null.")
        table = self._table()
        if not (self._is_slave and table.get_acl(subject) is None):
            table.delete_acl(subject, policy_type, resource)
        return self._saved(request)

    def _get_acl(self, request: RemotingCommand, channel: Channel) -> Answer:
        subject = parse_subject(decode(AclRequestHeader, request.ext_fields).subject)
        if subject is None:
            refuse("The subject is null.")
        table = self._table()
        acl = table.get_acl(subject)
        body = b"" if acl is None else table.acl_text(acl)
        return request.answer(remark=NOT_SET, body=body)

    def _list_acls(self, request: RemotingCommand, channel: Channel) -> Answer:
        header = decode(ListAclsRequestHeader, request.ext_fields)
        table = self._table()
        acls = table.list_acls(header.subject_filter or "", header.resource_filter or "")
        version = self._version_for(request, header.accounts_version)
        return answer_of(_list_steps(request, acls, table.acl_text, version))

    def _version_for(self, request: RemotingCommand, known: str | None) -> str | None:
        """The accounts' version for a slave that asks; None: it does not, or is no super user."""
        if known is None or not self._is_super(request):
            return None
        return f"{self._start}-{self._table().version}"


def _without_password(user: User) -> bytes:
    info = user_info(user)
    info.password = None
    return info.to_body()


def _user_of_request(request: RemotingCommand) -> UserInfo:
    """The body of 3001 or 3002, with the header's name.

    Raises: RequestRefused: INVALID_PARAMETER if there is no name; SYSTEM_ERROR: no readable body.
    """
    name = decode(UserRequestHeader, request.ext_fields).username
    if not name:
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, "The username is blank")
    info = _body(request, UserInfo.from_request)
    info.username = name
    return info


def _body(request: RemotingCommand, read: Callable[[bytes], _BodyT]) -> _BodyT:
    try:
        return read(request.body)
    except RemoteProtocolError as error:
        raise RequestRefused(
            ResponseCode.SYSTEM_ERROR, f"the body of request {request.code} cannot be read: {error}"
        ) from error


def _known(what: str, kind: type[_EnumT], name: str | None) -> _EnumT | None:
    """The member of a name; None: no name is given.

    Raises: RequestRefused: INVALID_PARAMETER if there is no such member. RocketMQ takes the default
      or changes nothing then.
    """
    if not (name or "").strip():
        return None
    for each in kind:
        if str(each.value).lower() == (name or "").lower():
            return each
    values = " or ".join(str(each.value) for each in kind)
    raise RequestRefused(
        ResponseCode.INVALID_PARAMETER, f"the {what} {_shown(name)} is not {values}"
    )


def _shown(text: str | None) -> str:
    return repr((text or "")[:_SHOWN_CHARS_MAX])


def _list_steps(
    request: RemotingCommand,
    items: Sequence[_ItemT],
    encode: Callable[[_ItemT], bytes],
    version: str | None,
) -> Steps[RemotingCommand]:
    """The answer with items as an array; without any there is no body, as RocketMQ does."""
    pieces: list[bytes] = []
    size = 0
    for item in items:
        piece = encode(item)
        pieces.append(piece)
        size += len(piece)
        if size >= _STEP_SIZE:
            size = 0
            yield
    body = b"[" + b",".join(pieces) + b"]" if pieces else b""
    fields = encode_header(AccountsResponseHeader(accounts_version=version))
    return request.answer(remark=NOT_SET, ext_fields=fields, body=body)
