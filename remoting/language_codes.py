"""The languages a peer may name in the header of a frame.

The JSON header carries the name, the ROCKETMQ header the number (one byte).

Source: LanguageCode of rocketmq-remoting 5.5.0.
"""

from __future__ import annotations

from enum import IntEnum


class LanguageCode(IntEnum):
    """In which language the sender of a frame is written."""

    JAVA = 0
    CPP = 1
    DOTNET = 2
    PYTHON = 3
    DELPHI = 4
    ERLANG = 5
    RUBY = 6
    OTHER = 7
    HTTP = 8
    GO = 9
    PHP = 10
    OMS = 11
    RUST = 12
    NODE_JS = 13
