"""AccessControl: first who a request is from, then whether that user may do it.

The cost of a send by a user whose rules allow it: one HMAC and one look-up of a decision.

Java counterpart: RocketMQ 5.3.3 broker/auth/pipeline/*.java, auth/…/strategy/*.java.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from ..remoting.channel import Channel
from ..remoting.codec import RemotingCommand
from ..remoting.errors import LocalProtocolError, RemoteProtocolError, RequestRefused
from ..remoting.hosts import host_of
from ..remoting.request_codes import RequestCode
from ..remoting.signature import ACCESS_KEY
from .accounts import Accounts
from .authenticator import WRONG_SIGNATURE, Authenticator, denied
from .authorizer import NO_MATCH, Authorizer
from .decisions import Decisions
from .model import Action, Decision, Resource, ResourceType, User, parse_address
from .needs import Need, OnMessage, Places, topic_of
from .rules import Rules
from .standing import is_proven, note_proven

UNREADABLE: Final = "parse authorization context error."
"""RocketMQ's text for a request whose topics and groups cannot be read."""

_UNDECLARED: Final = "{subject} has no permission to access request code {code} from {host}, {why}"
_REFUSED: Final = "{subject} has no permission to access {resource} from {host}, {why}"

_SHOWN_MAX: Final = 512
"""Characters of a refused resource that the answer repeats."""

HEART_BEAT: Final = int(RequestCode.HEART_BEAT)
HEARTBEAT_OF: Final = "user of the last heartbeat"
"""The attribute of a connection with that user's name."""


class AccessControl:
    """Checks requests by the accounts of a server. Used from the server's one trio run.

    Args:
      accounts: the users and their rules.
      needs: of the server's request codes.
      places: see `Places`.
    """

    def __init__(
        self,
        accounts: Accounts,
        needs: Mapping[int, Need],
        rules: Rules,
        places: Places,
    ) -> None:
        self._accounts = accounts
        self._authenticator = Authenticator(accounts.users)
        self._authorizer = Authorizer(accounts.acls)
        self._places = places
        self._authorizes = rules.authorizes
        self._needs = {int(code): need for code, need in needs.items()}
        self._unauthorized = rules.unauthorized
        self._open: Collection[int] = (
            rules.unauthenticated & rules.unauthorized
            if rules.authorizes
            else rules.unauthenticated
        )
        self._decisions: Decisions[str | None] = Decisions(needs)
        self._version = accounts.version

    def check(self, request: RemotingCommand, channel: Channel) -> User | None:
        """Refuse a request that must not be served.

        Returns: the user whose request it is; None: its code needs no user.
        Raises: RequestRefused: NO_PERMISSION, with RocketMQ's text.
        """
        code = request.code
        if code in self._open:
            return None
        user = self._authenticator.authenticate(request)
        if self._authorizes and not user.is_super and code not in self._unauthorized:
            self._follow_changes()
            refusal = self._decide(user, request, channel)
            if refusal is not None:
                raise denied(refusal)
        note_proven(channel, user.username, user.password)
        if code == HEART_BEAT:
            note_heartbeat(channel, user.username)
        return user

    def revoked(self, request: RemotingCommand, channel: Channel) -> RequestRefused | None:
        """See `standing.Rights`."""
        if request.code in self._open:
            return None
        name = request.ext_fields.get(ACCESS_KEY, "")
        user = self._accounts.users.get(name)
        if user is None:
            return denied(f"User:{name} is not found.")
        if not user.is_enabled:
            return denied(f"User:{name} is disabled.")
        if not is_proven(channel, name, user.password):
            return denied(WRONG_SIGNATURE)
        if not self._authorizes or user.is_super or request.code in self._unauthorized:
            return None
        self._follow_changes()
        refusal = self._decide(user, request, channel)
        return None if refusal is None else denied(refusal)

    def lacks(self, username: str, resource: Resource, action: Action, host: str) -> str | None:
        """Why a user may not do something, for what no request says; None: the user may."""
        user = self._accounts.users.get(username)
        if user is None or not user.is_enabled:
            return f"User:{username} is not found."
        if not self._authorizes or user.is_super:
            return None
        self._follow_changes()
        address = parse_address(host)
        why = self._authorizer.refusal(user.subject, resource, (action,), address)
        if why is None:
            return None
        asked = str(resource)[:_SHOWN_MAX]
        return _REFUSED.format(subject=user.subject, resource=asked, host=host, why=why)

    def may_publish(self, channel: object, topic: str) -> bool:
        """Whether the user who sent the last heartbeat on a connection may send to a topic.

        Any user may register as a producer of any group, and the broker's checks of transactions
        show a producer the message.
        """
        if not isinstance(channel, Channel):
            return False
        user = self._accounts.users.get(heartbeat_user(channel) or "")
        if user is None or not user.is_enabled:
            return False
        if not is_proven(channel, user.username, user.password):
            return False
        if not self._authorizes or user.is_super:
            return True
        self._follow_changes()
        address = parse_address(host_of(channel.remote_address))
        why = self._authorizer.refusal(user.subject, topic_of(topic), (Action.PUB,), address)
        return why is None

    def may_send(self, channel: object) -> bool:
        """Whether the user who sent the last heartbeat on a connection may send to any topic."""
        if not isinstance(channel, Channel):
            return False
        user = self._accounts.users.get(heartbeat_user(channel) or "")
        if user is None or not user.is_enabled:
            return False
        if not self._authorizes or user.is_super:
            return True
        acl = self._accounts.acls.get(user.subject)
        return acl is not None and any(
            entry.decision is Decision.ALLOW
            and entry.has_action((Action.PUB,))
            and entry.resource.type in (ResourceType.ANY, ResourceType.TOPIC)
            for policy in acl.policies
            for entry in policy.entries
        )

    @property
    def decision_count(self) -> int:
        """Decisions that are kept now."""
        return len(self._decisions.kept)

    def user_of(self, request: RemotingCommand) -> User | None:
        """The user that signed a request, also of a code that is not checked; None: none did."""
        try:
            return self._authenticator.authenticate(request)
        except RequestRefused:
            return None

    def _follow_changes(self) -> None:
        """Forget what depends on accounts that have changed."""
        if self._version != self._accounts.version:
            self._version = self._accounts.version
            self._decisions.clear()

    def _decide(self, user: User, request: RemotingCommand, channel: Channel) -> str | None:
        """Why a user's request is refused; None: it is not.

        Raises: RequestRefused: it names a message that is not there, or that the user must not
          know of.
        """
        decisions = self._decisions
        # The port is no part of a decision.
        key = decisions.key_of(request, user.username, channel.remote_host[:-4])
        if key is None:
            return self._refusal(user, request, channel)
        if key in decisions.kept:
            return decisions.kept[key]
        refusal = self._refusal(user, request, channel)
        decisions.keep(key, refusal)
        return refusal

    def _refusal(self, user: User, request: RemotingCommand, channel: Channel) -> str | None:
        host = host_of(channel.remote_address)
        need = self._needs.get(request.code)
        if need is None:
            return _UNDECLARED.format(
                subject=user.subject, code=request.code, host=host, why=NO_MATCH
            )
        address = parse_address(host)
        try:
            for part in need:
                for resource, actions in part.contexts(request, self._places):
                    why = self._authorizer.refusal(user.subject, resource, actions, address)
                    if why is not None and isinstance(part, OnMessage):
                        raise part.refusal(request)
                    if why is not None:
                        asked = str(resource)[:_SHOWN_MAX]
                        return _REFUSED.format(
                            subject=user.subject, resource=asked, host=host, why=why
                        )
        except (LocalProtocolError, RemoteProtocolError, ValueError):
            return UNREADABLE
        return None


def note_heartbeat(channel: Channel, username: str | None) -> None:
    """Remember whose heartbeat came last on a connection; None: it needs no user."""
    channel.attributes[HEARTBEAT_OF] = username


def heartbeat_user(channel: Channel) -> str | None:
    """The user whose heartbeat came last on a connection; None: unknown, or there are no
    accounts."""
    name = channel.attributes.get(HEARTBEAT_OF)
    return name if isinstance(name, str) else None
