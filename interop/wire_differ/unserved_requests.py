"""Scripts with the codes that only have a name: each server refuses them."""

from __future__ import annotations

from ...remoting.codec import SerializeType
from ...remoting.request_codes import UNSERVED_BY_APACHE
from .builders import Names, bad
from .request import Script, Server


def unserved(header: SerializeType) -> Script:
    """Each code, with the fields that most requests have."""
    names = Names("unserved", header)
    fields = {"topic": names("topic"), "group": names("group"), "consumerGroup": names("group")}
    steps = tuple(
        bad(f"at the {server.value}", code, fields, server=server, expect=3,
            # The name server of 4.9 does not answer at all.
            since="5.0.0" if server is Server.NAMESRV else "4.0")
        for code in sorted(UNSERVED_BY_APACHE)
        for server in Server
    )  # fmt: skip
    return Script("unserved codes", header, steps)


SCRIPTS = (unserved,)
"""Each creates a script for one kind of header."""
