"""A RocketMQ for tests: name server and broker in this process, ready in milliseconds.

`Broker` listens on real ports, for clients in any language; `MemoryBroker` lives inside a trio loop
and in its time; `RocketMQTestCase` is for unittest. pytest's fixtures are in `pytest_plugin`.
docs/tutorials/testing.md shows how they are used.

Place: above broker and namesrv, whose public parts it puts together. Nothing of it is needed, or
imported, where a broker serves in earnest. The names are loaded when they are first used.
"""

from typing import TYPE_CHECKING

__all__ = [
    "Broker",
    "EmbeddedBrokerError",
    "Fault",
    "Faults",
    "MemoryBroker",
    "RequestCode",
    "ResponseCode",
    "RocketMQTestCase",
]

# Each name stands here for type checkers, and in _HOMES for Python.
if TYPE_CHECKING:
    from ..remoting.request_codes import RequestCode
    from ..remoting.response_codes import ResponseCode
    from .broker import Broker
    from .errors import EmbeddedBrokerError
    from .faults import Fault, Faults
    from .memory_broker import MemoryBroker
    from .unittest_mixin import RocketMQTestCase
else:
    _HOMES = {
        "Broker": "broker",
        "EmbeddedBrokerError": "errors",
        "Fault": "faults",
        "Faults": "faults",
        "MemoryBroker": "memory_broker",
        "RequestCode": "codes",
        "ResponseCode": "codes",
        "RocketMQTestCase": "unittest_mixin",
    }

    def __getattr__(name: str) -> object:
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        value = getattr(import_module(f"{__name__}.{home}"), name)
        globals()[name] = value  # asked for once only
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *_HOMES})
