"""Changes of a configuration while its server runs: which keys may change, and which parts follow.

Pure. A server holds its configuration as dataclasses, and its parts read the fields where they need
them. So a changed field takes effect at once, and reading it costs nothing more. A part that
derives something from a key when it is created subscribes here, and derives it again.

`setting` declares with each key whether it may change. A key is one of these:

- *live*: it takes effect at once.
- *guarded*: a path, a command, or what protects the server. No request may ever change it.
- any other: it is read at the start only, so it is refused until someone edits the file and starts
  the server again.

Java counterpart: remoting/Configuration.java of 5.5.0, which sets any field by its setter, ignores
keys that it does not have, and leaves out what it cannot convert.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from .config import (
    Bounds,
    ConfigError,
    KnownKey,
    configure,
    decode,
    key_of,
    parse_properties,
    to_properties,
)

CHANGE_SIZE_MAX: Final = 32 * 1024
"""Bytes of one change, which take 10 ms. All keys with their values are 8 KiB."""

_LINE_END: Final = re.compile(r"\r\n|\r|\n")

NEEDS_RESTART: Final = "it is read at the start only: set it in the file, and start {server} again"


BLACK_LIST: Final = frozenset(
    ("brokerConfigPath", "configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome")
)
"""The keys that RocketMQ's servers refuse by default, whether they exist here or not.
Source: AdminBrokerProcessor.initConfigBlackList, NamesrvConfig.configBlackList of 5.5.0."""


CONNECTIONS: Final = ("tls.", "tlsConfigFile")
"""The beginnings of the keys that say who may connect and how; see `remoting/tls_config.py`."""


class KeyRefusedError(ConfigError):
    """A change of a key that requests may not change.

    Attributes:
      is_guarded: no request may ever change it; else it needs a restart.
    """

    def __init__(self, reason: str, *, is_guarded: bool) -> None:
        super().__init__(reason)
        self.is_guarded = is_guarded


class PlannedChange(NamedTuple):
    """A change that was checked and is not in effect yet.

    Attributes:
      configs: copies of the configurations with the new values.
      values: the new values by key, in a file's form.
    """

    configs: tuple[Any, ...]
    values: Mapping[str, str]


class LiveConfig:
    """The configurations of one server.

    Args:
      configs: dataclass instances; changed in place.
      known: gives RocketMQ's keys by name, supported or not.
      check: called with copies of `configs` before a change; raises ConfigError if their values do
        not fit together.
      server: the server's name in messages, such as "the broker".
    """

    def __init__(
        self,
        configs: Sequence[Any],
        known: Callable[[], Mapping[str, KnownKey]],
        *,
        check: Callable[..., None] = lambda *_: None,
        server: str,
    ) -> None:
        self.configs = tuple(configs)
        self.server = server
        self._known = known
        self._check = check
        self._subscribers: list[tuple[frozenset[str], Callable[[], object]]] = []

    def subscribe(self, callback: Callable[[], object], *keys: str) -> None:
        """Have a function called after each change of one of these keys."""
        self._subscribers.append((frozenset(keys), callback))

    def plan(self, body: bytes) -> PlannedChange:
        """Check a change completely, without making it.

        Args:
          body: properties text, UTF-8.
        Raises: ConfigError: the text or a value is wrong, or a key does not exist or is not
          supported. KeyRefusedError: a key may not change. The reason names the key in each case.
        """
        if len(body) > CHANGE_SIZE_MAX:
            raise ConfigError(f"{len(body)} bytes of settings, the limit is {CHANGE_SIZE_MAX}")
        try:
            entries = parse_properties(body.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise ConfigError(f"the settings are not UTF-8: {error}") from error
        fields = {
            key_of(field): field for config in self.configs for field in dataclasses.fields(config)
        }
        for entry in entries:
            if entry.key in BLACK_LIST:
                reason = f"{entry.key}: RocketMQ forbids it, too"
                raise KeyRefusedError(reason, is_guarded=True)
            if entry.key.startswith(CONNECTIONS):
                reason = f"{entry.key}: it protects connections, so no request may change it"
                raise KeyRefusedError(reason, is_guarded=True)
            if entry.key in fields:
                _refuse_fixed(entry.key, fields[entry.key], self.server)
            elif entry.key in self._known():
                effect = self._known()[entry.key].effect
                raise ConfigError(f"{entry.key} would have no effect: {effect}")
        # Nothing is clamped here: a request that cannot be met exactly is refused.
        copies, _ = configure(entries, self.configs, self._known, clamps=False)
        keys = {entry.key for entry in entries}
        values = {
            key: value for each in copies for key, value in to_properties(each) if key in keys
        }
        for key, value in values.items():
            bounds = fields[key].metadata["live"]
            if isinstance(bounds, Bounds) and not bounds.minimum <= int(value) <= bounds.maximum:
                raise ConfigError(
                    f"{key} must be in {bounds.minimum}..{bounds.maximum} while {self.server} "
                    f"runs, not {value}"
                )
        if values:
            # The same checks as at the start, so that a change cannot make a file that a start
            # refuses.
            self._check(*copies)
        return PlannedChange(copies, values)

    def apply(self, change: PlannedChange) -> list[Callable[[], object]]:
        """Put a change into effect.

        Returns: the functions that are subscribed to its keys; the caller calls each.
        """
        for config, changed in zip(self.configs, change.configs, strict=True):
            for field in dataclasses.fields(config):
                if key_of(field) in change.values:
                    setattr(config, field.name, getattr(changed, field.name))
        return [call for keys, call in self._subscribers if keys & change.values.keys()]


def _refuse_fixed(key: str, field: dataclasses.Field[Any], server: str) -> None:
    """Raises: KeyRefusedError: no request may change the key."""
    guarded = field.metadata.get("guarded", "")
    if guarded:
        reason = f"{key}: it {guarded}, so no request may change it"
        raise KeyRefusedError(reason, is_guarded=True)
    if not field.metadata.get("live"):
        reason = f"{key}: {NEEDS_RESTART.format(server=server)}"
        raise KeyRefusedError(reason, is_guarded=False)


def edit_properties(content: bytes, values: Mapping[str, str]) -> bytes:
    """Set values in a properties file; everything else, including comments, stays as it was.

    A value that lines of the file continue is replaced together with them.

    Args:
      content: the current file; empty if there is none.
      values: ASCII text by key.
    """
    left = dict(values)
    kept: list[str] = []
    lines = _LINE_END.split(decode(content))[::-1]
    if not lines[0]:
        del lines[0]  # behind the last line's end
    while lines:
        natural = [lines.pop()]
        is_comment = natural[0].lstrip(" \t\f")[:1] in ("", "#", "!")
        while lines and not is_comment and _continues(natural[-1]):
            natural.append(lines.pop())
        key = _key_of_line("\n".join(natural))
        if key not in values:
            kept += natural
        elif key in left:
            kept.append(f"{key}={left.pop(key)}")
    if left and kept and _continues(kept[-1]):
        kept.append("")  # or the last line would take the next one as its continuation
    kept += [f"{key}={value}" for key, value in left.items()]
    return "".join(f"{line}\n" for line in kept).encode("latin-1")


def _continues(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _key_of_line(line: str) -> str:
    """The key that a line sets; "" for a comment or a malformed line."""
    try:
        entries = parse_properties(line)
    except ConfigError:
        return ""
    return entries[0].key if entries else ""
