"""PlainAccess: the checks of ACL 1.0.

What a request needs is declared once, for both generations of accounts (`needs.py`). Here it is
compared with the permissions of plain_acl.yml:

    needed action           enough
    Pub                     PUB
    Sub                     SUB
    Get, Any                PUB or SUB
    any other, or one on    admin: true
    the cluster

As in RocketMQ, every account may send traces to RMQ_SYS_TRACE_TOPIC. An administrator may do
everything, unless permissions are listed for it: then they bind it, too.

The permissions are not converted to the policies of ACL 2.0. In 1.0 a listed topic is never
governed by the defaults, and a policy cannot say that: one resource has one rule.

Java counterpart: validate and checkPerm of acl/plain/PlainPermissionManager.java, and
acl/plain/PlainAccessValidator.java of 4.9.7, which checks the permissions of ten codes and the
administrator's flag of five; every other code is open there to any account (docs/quirks.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple, NoReturn

from ..common.topic_names import RETRY_TOPIC_PREFIX, TRACE_TOPIC
from ..remoting.channel import Channel
from ..remoting.codec import RemotingCommand
from ..remoting.errors import LocalProtocolError, RemoteProtocolError, RequestRefused
from ..remoting.request_codes import RequestCode
from ..remoting.response_codes import ResponseCode
from ..remoting.signature import ACCESS_KEY
from .access_control import HEART_BEAT, HEARTBEAT_OF, note_heartbeat
from .authenticator import Authenticator
from .decisions import Decisions
from .model import Action, Resource, ResourcePattern, ResourceType
from .needs import Context, Need, OnMessage, Places
from .plain_acl import Perm, PlainAccount, PlainAcl
from .remote_address import parts_of
from .standing import is_proven, note_proven

EXCEPTION: Final = "org.apache.rocketmq.acl.common.AclException: "
"""Begins each remark, as the text of RocketMQ's exception does. The line of Java source that
RocketMQ appends is left out."""

CODES_OF_V1: Final = frozenset(
    {
        RequestCode.SEND_MESSAGE,
        RequestCode.PULL_MESSAGE,
        RequestCode.QUERY_MESSAGE,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.HEART_BEAT,
        RequestCode.UNREGISTER_CLIENT,
        RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
    }
)
"""The codes whose resources RocketMQ checks, 320 since 5.2.0. PUB is not enough for them where they
read: an account that may only send reads no message by its key."""

ADMIN_CODES_OF_V1: Final = frozenset(
    {
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.UPDATE_BROKER_CONFIG,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        RequestCode.DELETE_TOPIC_IN_BROKER,
    }
)
"""The codes that RocketMQ keeps for administrators; it says so before it reads the request."""

HOSTS_CACHED_MAX: Final = 4_096
"""Addresses of peers whose parts are remembered."""

_PERMS_OF: Final = {
    Action.PUB: Perm.PUB,
    Action.SUB: Perm.SUB,
    Action.GET: Perm.PUB | Perm.SUB,
    Action.ANY: Perm.PUB | Perm.SUB,
}
_SHOWN_MAX: Final = 255  # characters of a name that no account has
_NOTHING: Final = Perm(0)

_parts_of = lru_cache(maxsize=HOSTS_CACHED_MAX)(parts_of)


class _Refusal(NamedTuple):
    code: int
    remark: str


class PlainAccess:
    """Checks the requests of a broker.

    Args:
      acl: gives the accounts now.
      needs: what each code needs; a code without an entry is for administrators.
    """

    def __init__(
        self,
        acl: Callable[[], PlainAcl],
        needs: Mapping[int, Need],
        places: Places,
    ) -> None:
        self._acl = acl
        self._needs = {int(code): need for code, need in needs.items()}
        self._places = places
        self._decisions: Decisions[_Refusal | None] = Decisions(needs)
        self._decided_by: PlainAcl | None = None
        self._authenticator = Authenticator({})

    def check(self, request: RemotingCommand, channel: Channel) -> PlainAccount | None:
        """Refuse a request that must not be served.

        Returns: the account that signed it; None: its address needs no signature.
        Raises: RequestRefused: SYSTEM_ERROR, with RocketMQ's text.
        """
        account = self._checked(request, channel)
        if account is not None:
            note_proven(channel, account.access_key, account.secret_key)
        if request.code == HEART_BEAT:
            note_heartbeat(channel, None if account is None else account.access_key)
        return account

    def may_publish(self, channel: object, topic: str) -> bool:
        """Whether who sent the last heartbeat on a connection may send to a topic.

        As `AccessControl.may_publish`. One that needed no signature may.
        """
        if not isinstance(channel, Channel) or HEARTBEAT_OF not in channel.attributes:
            return False
        name = channel.attributes[HEARTBEAT_OF]
        if name is None:
            return True
        account = self._acl().accounts.get(str(name))
        if account is None or not is_proven(channel, account.access_key, account.secret_key):
            return False
        return account.may_everything or account.allows(topic, Perm.PUB)

    def may_send(self, channel: object) -> bool:
        """Whether who sent the last heartbeat on a connection has an account, or needs none."""
        if not isinstance(channel, Channel) or HEARTBEAT_OF not in channel.attributes:
            return False
        name = channel.attributes[HEARTBEAT_OF]
        return name is None or str(name) in self._acl().accounts

    def revoked(self, request: RemotingCommand, channel: Channel) -> RequestRefused | None:
        """See `standing.Rights`."""
        acl = self._acl()
        host = _parts_of(channel.remote_address.rpartition(":")[0])
        if any(host in addresses for addresses in acl.white_addresses):
            return None
        try:
            account = _account_of(request, acl)
            if host in account.white_addresses:
                return None
            if not is_proven(channel, account.access_key, account.secret_key):
                _refuse(f"Check signature failed for accessKey={account.access_key}")
        except RequestRefused as refusal:
            return refusal
        if account.may_everything:
            return None
        refused = self._decide(request, account, acl)
        return None if refused is None else RequestRefused(*refused)

    def _checked(self, request: RemotingCommand, channel: Channel) -> PlainAccount | None:
        acl = self._acl()
        host = _parts_of(channel.remote_address.rpartition(":")[0])
        if any(host in addresses for addresses in acl.white_addresses):
            return None
        account = _account_of(request, acl)
        if host in account.white_addresses:
            return None
        if not self._is_signed(request, account):
            _refuse(f"Check signature failed for accessKey={account.access_key}")
        if not account.may_everything:
            refusal = self._decide(request, account, acl)
            if refusal is not None:
                raise RequestRefused(*refusal)
        return account

    def is_administrator(self, request: RemotingCommand) -> bool:
        """Whether a request is signed by an administrator's account."""
        account = self._acl().accounts.get(request.ext_fields.get(ACCESS_KEY, ""))
        return account is not None and account.is_admin and self._is_signed(request, account)

    def _is_signed(self, request: RemotingCommand, account: PlainAccount) -> bool:
        return self._authenticator.is_signed(request, account.secret_key)

    def _decide(
        self, request: RemotingCommand, account: PlainAccount, acl: PlainAcl
    ) -> _Refusal | None:
        """Why a request is refused; None: it is not. Decisions are kept while the accounts are."""
        if self._decided_by is not acl:
            self._decided_by = acl
            self._decisions.clear()
        decisions = self._decisions
        key = decisions.key_of(request, account.access_key)
        if key is None:
            return self._refusal(request, account)
        if key in decisions.kept:
            return decisions.kept[key]
        refusal = self._refusal(request, account)
        decisions.keep(key, refusal)
        return refusal

    def _refusal(self, request: RemotingCommand, account: PlainAccount) -> _Refusal | None:
        try:
            self._check_perms(request, account)
        except RequestRefused as refusal:
            return _Refusal(refusal.code, refusal.remark)
        return None

    def _check_perms(self, request: RemotingCommand, account: PlainAccount) -> None:
        need = self._needs.get(request.code)
        if need is None or request.code in ADMIN_CODES_OF_V1:
            _check_admin(request, account)
        if need is None:
            return
        try:
            for part in need:
                for context in part.contexts(request, self._places):
                    try:
                        _check_context(request, account, context)
                    except RequestRefused:
                        if isinstance(part, OnMessage):
                            raise part.refusal(request) from None
                        raise
        except (LocalProtocolError, RemoteProtocolError, ValueError) as error:
            _refuse(str(error))


def _account_of(request: RemotingCommand, acl: PlainAcl) -> PlainAccount:
    access_key = request.ext_fields.get(ACCESS_KEY)
    if access_key is None:
        _refuse("No accessKey is configured")
    account = acl.accounts.get(access_key)
    if account is None:
        _refuse(f"No acl config for {access_key[:_SHOWN_MAX]}")
    return account


def _check_context(request: RemotingCommand, account: PlainAccount, context: Context) -> None:
    resource, actions = context
    perm = _needed(request.code, actions)
    is_named = resource.pattern is ResourcePattern.LITERAL
    if not perm or not is_named or resource.type not in (ResourceType.TOPIC, ResourceType.GROUP):
        _check_admin(request, account)
        return
    if resource == _TRACES and Action.PUB in actions:
        return
    is_group = resource.type is ResourceType.GROUP
    name = RETRY_TOPIC_PREFIX + resource.name if is_group else resource.name
    if not account.allows(name, perm):
        _refuse(f"No default permission for {'group' if is_group else 'topic'}:{resource.name}")


def _needed(code: int, actions: tuple[Action, ...]) -> Perm:
    """The permissions of which one is enough; none: it is for administrators."""
    if code in CODES_OF_V1 and Action.SUB in actions and Action.PUB not in actions:
        return Perm.SUB
    perm = _NOTHING
    for action in actions:
        perm |= _PERMS_OF.get(action, _NOTHING)
    return perm


def _check_admin(request: RemotingCommand, account: PlainAccount) -> None:
    if not account.is_admin:
        _refuse(
            f"Need admin permission for request code={int(request.code)}, but "
            f"accessKey={account.access_key} is not"
        )


_TRACES: Final = Resource(ResourceType.TOPIC, TRACE_TOPIC)
"""Every account may send traces here, as in RocketMQ."""


def _refuse(text: str) -> NoReturn:
    raise RequestRefused(ResponseCode.SYSTEM_ERROR, EXCEPTION + text)
