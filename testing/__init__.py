"""A RocketMQ for tests: a name server and a broker in this process, ready in milliseconds.

`Broker` listens on real ports, for clients in any language. `MemoryBroker` runs inside a trio loop
and uses its clock. `RocketMQTestCase` is for unittest. The pytest fixtures are in `pytest_plugin`.
docs/tutorials/testing.md shows how to use them.

This package is built on broker and namesrv, which do not import it. Its names are loaded when they
are first used.
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
    from .faults import Faults
    from .faulty_processors import Fault
    from .memory_broker import MemoryBroker
    from .unittest_mixin import RocketMQTestCase
else:
    _HOMES = {
        "Broker": "broker",
        "EmbeddedBrokerError": "errors",
        "Fault": "faulty_processors",
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

        try:
            value = getattr(import_module(f"{__name__}.{home}"), name)
        except ModuleNotFoundError as error:
            if (error.name or "").startswith("trocket"):
                raise
            raise ModuleNotFoundError(
                f"trocket.testing.{name} needs {error.name}: pip install 'trocket[broker]'",
                name=error.name,
            ) from error
        globals()[name] = value  # found without __getattr__ from now on
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *_HOMES})
