"""AccessControl: first who a request is from, then whether that user may do it.

The cost of a send by a user whose rules allow it: one HMAC and one look-up of a decision.

Java counterpart: RocketMQ 5.3.3 broker/auth/pipeline/*.java, auth/…/strategy/*.java.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from ..remoting.channel import Channel
from ..remoting.codec import RemotingCommand
from ..remoting.errors import LocalProtocolError, RemoteProtocolError
from ..remoting.signature import ACCESS_KEY
from .accounts import Accounts
from .authenticator import Authenticator, denied
from .authorizer import NO_MATCH, Authorizer
from .model import User, parse_address
from .needs import Need, Places

DECISIONS_MAX: Final = 10_000
"""Decisions that are kept, as many as RocketMQ keeps (statefulAuthorizationCacheMaxNum)."""

DECISION_SIZE_MAX: Final = 1_024
"""Characters of the names of one decision: those of longer ones are not kept, because a peer may
send names of 32 KiB. With DECISIONS_MAX this bounds the cache to about 15 MB."""

UNREADABLE: Final = "parse authorization context error."
"""RocketMQ's text for a request whose topics and groups cannot be read."""

_UNDECLARED: Final = "{subject} has no permission to access request code {code} from {host}, {why}"
_REFUSED: Final = "{subject} has no permission to access {resource} from {host}, {why}"

_SHOWN_MAX: Final = 512
"""Characters of a refused resource that the answer repeats."""

_Key = tuple[str | bytes | int | None, ...]


@dataclass(frozen=True, slots=True)
class Rules:
    """The settings of one server's access control.

    Attributes:
      authorizes: whether users need rights; otherwise each that proves its name may do everything.
      unauthenticated: codes that anyone may send: authenticationWhitelist. A code for which users
        need rights is authenticated in any case, because rights belong to a proved name.
      unauthorized: codes that every user may send: authorizationWhitelist.
    """

    authorizes: bool = False
    unauthenticated: frozenset[int] = frozenset()
    unauthorized: frozenset[int] = frozenset()


class AccessControl:
    """Checks requests by the accounts of a server. Used from the server's one trio run.

    Args:
      accounts: the users and their rules.
      needs: of the server's request codes.
      rules: the server's settings.
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
        all_fields = {code: _fields(need) for code, need in self._needs.items()}
        self._fields = {code: each for code, each in all_fields.items() if each is not None}
        self._unauthorized = rules.unauthorized
        self._open: Collection[int] = (
            rules.unauthenticated & rules.unauthorized
            if rules.authorizes
            else rules.unauthenticated
        )
        self._decisions: dict[_Key, str | None] = {}
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
        if not self._authorizes or user.is_super or code in self._unauthorized:
            return user
        if self._version != self._accounts.version:
            self._version = self._accounts.version
            self._decisions.clear()
            self._authorizer.forget()
        refusal = self._decide(user, request, channel)
        if refusal is not None:
            raise denied(refusal)
        return user

    @property
    def decision_count(self) -> int:
        """Decisions that are kept now."""
        return len(self._decisions)

    def user_of(self, request: RemotingCommand) -> User | None:
        """The user that a request names, which `check` has proved; None: there is none."""
        return self._accounts.users.get(request.ext_fields.get(ACCESS_KEY, ""))

    def _decide(self, user: User, request: RemotingCommand, channel: Channel) -> str | None:
        """Why a user's request is refused; None: it is not."""
        fields = self._fields.get(request.code)
        if fields is None:
            return self._refusal(user, request, channel)
        values = request.ext_fields.get
        # The port is no part of a decision.
        key: _Key = (
            user.username,
            request.code,
            channel.remote_host[:-4],
            *[values(name) for name in fields],
        )
        decisions = self._decisions
        if key in decisions:
            return decisions[key]
        refusal = self._refusal(user, request, channel)
        if sum(len(part) for part in key if isinstance(part, str)) <= DECISION_SIZE_MAX:
            if len(decisions) >= DECISIONS_MAX:
                decisions.clear()
            decisions[key] = refusal
        return refusal

    def _refusal(self, user: User, request: RemotingCommand, channel: Channel) -> str | None:
        host = channel.remote_address.rpartition(":")[0].strip("[]")
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
                    if why is not None:
                        asked = str(resource)[:_SHOWN_MAX]
                        return _REFUSED.format(
                            subject=user.subject, resource=asked, host=host, why=why
                        )
        except (LocalProtocolError, RemoteProtocolError, ValueError):
            return UNREADABLE
        return None


def _fields(need: Need) -> tuple[str, ...] | None:
    """The header's fields on which a decision depends; None: it depends on more."""
    fields: list[str] = []
    for part in need:
        if part.fields is None:
            return None
        fields += part.fields
    return tuple(dict.fromkeys(fields))
