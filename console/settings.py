"""Settings of a console, as the command line gives them."""

from __future__ import annotations

from pathlib import Path

import msgspec

from .stopped import StoppedStore

DEFAULT_PORT = 8082
"""That of Apache's Dashboard."""
SILENT_TIMEOUT_S = 0.5
"""For a request to a server that was silent: every page would wait the whole time limit for a
broker that hangs. The client of a console has it as its option."""


class ConsoleSettings(msgspec.Struct, frozen=True):
    """What a console was started with.

    Attributes:
      host, port: where it listens; port 0: any free one.
      allowed_hosts: names in the Host header that it answers beside the loopback names.
      prefix: of all paths, such as "/mq" behind a proxy; "": none.
      is_read_only: refuses every change.
      stopped: the store of a stopped broker that is shown; None: a cluster is. Every change is
        refused then.
      passwords: a file of `name:role:password hash`; None: there is none.
      trusted_header: a header with the name of a person whom a proxy has let in; "": none.
      trusted_proxies: addresses of the proxies that may send it.
      trusted_role: the role of a person with that header.
      cluster_accounts: people log in with accounts of the cluster.
      audit_log: the file of the audit log; None: in memory.
      masks: what is hidden, as `topic:$.path` or `topic:properties.NAME`.
      decoder: a function that shows bodies, as `package:function`; "": none.
    """

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    allowed_hosts: frozenset[str] = frozenset()
    prefix: str = ""
    is_read_only: bool = False
    stopped: StoppedStore | None = None
    passwords: Path | None = None
    trusted_header: str = ""
    trusted_proxies: frozenset[str] = frozenset()
    trusted_role: str = "look"
    cluster_accounts: bool = False
    audit_log: Path | None = None
    masks: tuple[str, ...] = ()
    decoder: str = ""
