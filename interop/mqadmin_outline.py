"""Outlines of mqadmin's output: without what differs from run to run. Pure.

Lines are sorted, because mqadmin prints maps in the order of Java's hash tables.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence

from .mqadmin_table import Command

_NOISE = re.compile(
    r"\s+at |\s+\.\.\. \d+ |See https?:|For more inf|SLF4J|RocketMQLog|WARNING:|\s*$"
)
"""Stack traces, links, and messages of the logging itself."""

_VOLATILE = tuple(
    (re.compile(pattern), word)
    for pattern, word in (
        (r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?", "TIME"),
        (r"\b[0-9A-F]{24,}(?=\b|SendResult)", "ID"),
        (r"\b127\.0\.0\.1:\d+", "CLIENT"),
        (r"(?<=[a-z])@[0-9a-f]{4,8}\b|\$\$Lambda\$\d+/\S+", "@OBJECT"),
        (r"(?<=[\s/@])\d+@\S+|(?<=[= \[])[\w.]+#[\w#@.]+", "INSTANCE"),
        (r"\b\d+\.\d+(?:E-?\d+)?\b|\bNaN\b", "RATE"),
        # A broker's own records shift all offsets in the commit log.
        (r"(?<=commitLogOffset=)\d+|(?<=^CommitLog Offset:)\s+\d+|(?<=physicOffset=)\d+", " PLACE"),
        (r"Timeout: .*", "Timeout"),
        (r"(?<=bodyCRC=)\d+", "CRC"),
        (r"\b\d{10,}\b", "LONG"),
        (r"(?i)\brt=\d+ ?ms|\bcosts? \d+ ?ms|(?<=spentTimeMills=)\d+", "SPAN"),
    )
)
_MEMBERS = re.compile(r"\{(\w+=[^{}]*)\}")
_NUMBER = re.compile(r"\d+")
_SEPARATOR = re.compile(r" = | ?: ")
_OWN = re.compile(
    r"(?i)(^|\s)(rmq_sys|%RETRY%(TOOLS|CID)|TBW102|TRANS_CHECK|SELF_TEST|OFFSET_MOVED|BenchmarkTest|SCHEDULE_"
    r"|TOOLS_CONSUMER|CID_|[\w-]+_REPLY_TOPIC)"
)
_FAILED = re.compile(
    r"(?m)^(Caused by: .*|(?:[a-z]\w*\.)+[A-Z]\w*(?:Exception|Error)\b.*|.*\bcommand failed\b.*"
    r"|The sub command \S+ not exist.*|usage: mqadmin .*|Unrecognized option.*"
    r"|Missing required option.*)$"
)


def outline(printed: str, command: Command, names: Mapping[str, str]) -> list[str]:
    """The lines to compare, sorted.

    Args:
      names: placeholders by the addresses, brokers and folders of this run; where one contains
        another, the longest first.
    """
    lines = []
    for line in printed.splitlines():
        if _NOISE.match(line) or (command.own_topics and _is_own(line, names)):
            continue
        if command.only and not re.search(command.only, line):
            continue
        for text, word in names.items():
            line = line.replace(text, word)
        for pattern, word in _VOLATILE:
            line = pattern.sub(word, line)
        # Java prints a map in the order of its hash table.
        line = _MEMBERS.sub(_sorted_members, line)
        if not command.numbers:
            line = _NUMBER.sub("0", line)
        lines.append(" ".join(line.split()))
    return sorted(lines)


def _sorted_members(found: re.Match[str]) -> str:
    return "{" + ", ".join(sorted(found[1].split(", "))) + "}"


def _is_own(line: str, names: Mapping[str, str]) -> bool:
    """Whether a line is about an internal topic; every broker and cluster has one, too."""
    return _OWN.search(line) is not None or line.strip() in names


def failure(printed: str) -> str:
    """The error that a command printed; empty if it succeeded.

    mqadmin always ends with status 0, so its output is the only sign of a failure.
    """
    found = [match[0].strip() for match in _FAILED.finditer(printed)]
    causes = [text for text in found if text.startswith("Caused by")]
    return (causes or found or [""])[-1].removeprefix("Caused by: ")


def keys(lines: Sequence[str]) -> set[str]:
    """The key of each `key = value` or `key : value` line; other lines whole."""
    return {_SEPARATOR.split(line, 1)[0] for line in lines}


def differences(expected: Sequence[str], got: Sequence[str]) -> list[str]:
    """Lines in only one of two outlines: `- ` for Apache's, `+ ` for the other."""
    return [line for line in difflib.ndiff(expected, got) if line.startswith(("- ", "+ "))]
