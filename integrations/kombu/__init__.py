"""A transport of kombu, so that Celery works over RocketMQ: `pip install 'trocket[kombu]'`.

::

    import trocket.integrations.kombu
    from celery import Celery

    trocket.integrations.kombu.register()
    app = Celery("shop", broker="rocketmq://10.0.0.7:9876")

docs/tutorials/celery.md has the options, and what works how.
"""

from __future__ import annotations

from typing import Final

__all__ = ["SCHEME", "TRANSPORT", "register"]

SCHEME: Final = "rocketmq"
"""The scheme of the URLs that kombu gives to this transport."""

TRANSPORT: Final = "trocket.integrations.kombu.transport:Transport"
"""Where the transport is, as kombu names one; it is imported with the first connection."""


def register() -> None:
    """Have kombu use this transport for URLs that begin with `rocketmq://`.

    Call it where the Celery application is made, before its broker is used. Calling it again
    changes nothing.

    Raises: ModuleNotFoundError: kombu is not installed; the text names the extra.
    """
    try:
        from kombu.transport import TRANSPORT_ALIASES
    except ModuleNotFoundError as error:
        if error.name != "kombu":
            raise
        raise ModuleNotFoundError(
            "trocket.integrations.kombu needs kombu: pip install 'trocket[kombu]'", name="kombu"
        ) from error
    TRANSPORT_ALIASES[SCHEME] = TRANSPORT
