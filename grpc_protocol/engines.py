"""The engines of new connections: by libnghttp2, or in pure Python where that is missing."""

from __future__ import annotations

from .client_engine import ClientEngine
from .engine import Engine


def new_engine() -> Engine:
    """The engine of a server's new connection. Raises: ImportError: neither is installed."""
    try:
        from .engine_ngh2 import Ngh2Engine
    except ImportError:
        from .engine_h2 import H2Engine

        return H2Engine()
    return Ngh2Engine()


def new_client_engine() -> ClientEngine:
    """The engine of a client's new connection. Raises: ImportError: neither is installed."""
    try:
        from .client_ngh2 import Ngh2ClientEngine
    except ImportError:
        from .client_h2 import H2ClientEngine

        return H2ClientEngine()
    return Ngh2ClientEngine()
