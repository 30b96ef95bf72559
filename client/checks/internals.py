"""Public attributes that parts of the package use of one another, and programs do not.

`dir`, completion and the API's pages leave them out. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

INTERNALS: Final[Mapping[str, tuple[str, ...]]] = {
    "Client": (
        "add_member",
        "check_loop",
        "connection",
        "forget_route",
        "is_over",
        "known_publish_info",
        "master_address",
        "master_of",
        "members",
        "next_opaque",
        "next_unique_id",
        "now_s",
        "on_connected",
        "open_connection",
        "owner",
        "publish_info",
        "reading_address",
        "remove_member",
        "replies",
        "start_soon",
        "start_wait_s",
        "wait_for_broker_s",
        "window",
    ),
    "DeliveryState": ("look_at", "settle"),
    "Producer": ("accumulator", "sender"),
    "PushConsumer": ("delivery_queue", "handling", "next_message", "receive_nowait"),
    "PushedMessage": ("again", "inner"),
}
"""By the class that has them; its subclasses inherit them."""


def is_internal(kind: type, name: str) -> bool:
    """Whether a class has an attribute for other parts of the package."""
    return any(
        name in INTERNALS.get(base.__name__, ()) and base.__module__.startswith("trocket.")
        for base in kind.__mro__
    )
