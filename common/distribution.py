"""The name of the installed distribution, for error messages."""

from __future__ import annotations


def to_install(extra: str) -> str:
    """The command that installs an extra: `pip install 'trocket[compression]'`.

    `trocket-client` has the same modules as `trocket`, without those of servers: its users are not
    asked to install the other one.
    """
    from importlib.util import find_spec  # only an error needs it

    is_whole = find_spec("trocket.broker") is not None
    return f"pip install '{'trocket' if is_whole else 'trocket-client'}[{extra}]'"
