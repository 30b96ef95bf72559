"""AccessControl: authentication and authorization of requests.

Java counterpart: RocketMQ 5.3.3 broker/auth/pipeline/*.java, auth/…/strategy/*.java.
"""

from __future__ import annotations

from ..remoting.channel import Channel
from ..remoting.codec import RemotingCommand
from .accounts import Accounts
from .model import User


class AccessControl:
    """Checks requests by the accounts of a server.

    Args:
      accounts: the users and their rules.
    """

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts

    def check(self, request: RemotingCommand, channel: Channel) -> User | None:
        """Refuse a request that must not be served.

        Returns: the user whose request it is; None: its code needs no user.
        Raises: RequestRefused: NO_PERMISSION, with RocketMQ's text.
        """
        raise NotImplementedError
