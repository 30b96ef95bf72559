"""Health: whether a broker is alive, and what is missing until it is ready.

Pure. Ready means that clients find the broker and that it does what they want: its store is open
and accepts messages, and at least one name server knows it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ..assembly import BrokerParts

RECOVERING: Final = (
    "the store is being opened, and after a crash recovered: clients are served when that is done"
)
STOPPING: Final = "the broker is stopping"


def missing(parts: BrokerParts, *, is_serving: bool) -> list[str]:
    """What keeps a broker from being ready, one sentence each; empty: it is ready.

    Args:
      is_serving: it has started and is not stopping.
    """
    if not is_serving:
        return [STOPPING]
    found = []
    trouble = parts.store.trouble
    if trouble:
        found.append(f"sends are refused: {trouble}")
    addresses = parts.config.namesrv_addresses
    if not addresses:
        found.append(
            "no name server is configured, so clients cannot find the broker: set namesrvAddr"
        )
    elif parts.cluster.registrar.refusals and not parts.cluster.registrar.is_registered:
        found += [
            f"name server {address} refuses the registration: {refusal}. The broker's log says more"
            for address, refusal in parts.cluster.registrar.refusals.items()
        ]
    elif not parts.cluster.registrar.is_registered:
        found.append(
            f"no name server has answered a registration: {', '.join(addresses)}. "
            "Check that they run and that their addresses are right"
        )
    return found
