"""Configuration files: RocketMQ's Java properties syntax, and its keys onto typed dataclasses.

Pure: text, defaults and tables come in, configured copies and warnings go out. A key of the file is
one of three things:

- *supported*: a field of one of the dataclasses: `broker_name` is `brokerName` (`key_of`).
- *known*: RocketMQ has it and trocket does not use it. One warning that names the key and says what
  that means.
- *unknown*: a typing error. RocketMQ ignores it silently; here it is a ConfigError that names the
  nearest key, if one is near. A key of another program's file is a warning that names the file.

Java counterpart: java.util.Properties.load with MixAll.properties2Object, which finds keys by
setter and swallows every error: there a number that does not parse silently keeps the default.
Here that too is a ConfigError. As there, an expression such as `1024 * 1024` is not evaluated.
"""

from __future__ import annotations

import dataclasses
import enum
import math
import re
import typing
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path, PurePath
from typing import Any, Final, NamedTuple

from .java_integers import INT64_MAX, INT64_MIN

TEXT_SIZE_MAX = 1024 * 1024
"""Characters of one file. Apache's largest example has 2,000; with every key set it is 30,000."""

_KEY_SHOWN_MAX = 100
"""Characters of an unknown key that are repeated in an error."""


_CAPITALS = {"crc": "CRC", "ip": "IP", "ip1": "IP1", "ip2": "IP2"}
"""Words that RocketMQ's keys spell in capitals."""

_ADDRESS = re.compile(r"(?:\[[0-9A-Fa-f:.%]+\]|[^\s:;,\[\]]+):([0-9]{1,5})")
_BLANKS = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_HEXADECIMAL = re.compile(r"[0-9A-Fa-f]{4}")
_FIRST_WORD = re.compile(r"[^A-Za-z0-9.]")
"""What ends the key with which the text of an error begins."""
_NEAR = 0.6
"""How alike two keys are, of 1, of which one may be a slip of the other."""
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")


class ConfigError(Exception):
    """An unusable configuration; `str()` of it is one line for the operator.

    Args:
      reason: what is wrong and what would be right.
      path: the file; "" if there is none.
      line: 1-based line in that file; 0: no single line is wrong.

    Attributes:
      warnings: of the same configuration, one line each.
    """

    def __init__(self, reason: str, *, path: str = "", line: int = 0) -> None:
        super().__init__(at(path, line) + reason)
        self.reason = reason
        self.path = path
        self.line = line
        self.warnings: list[str] = []


class ConfigErrors(ConfigError):
    """Several errors of one configuration; `str()` of it has a line for each.

    Args:
      errors: two or more.
    """

    def __init__(self, errors: Sequence[ConfigError]) -> None:
        Exception.__init__(self, "\n".join(map(str, errors)))
        first = errors[0]
        self.errors = tuple(errors)
        self.reason, self.path, self.line = str(self), first.path, first.line
        self.warnings = [text for error in errors for text in error.warnings]


class Problems:
    """Collects the errors of a configuration, so that an operator sees all of them at once.

    Args:
      entries: of the file; an error whose text begins with a key gets the key's line.
      path: the file; "" if there is none.
    """

    def __init__(self, entries: Sequence[Entry], path: str) -> None:
        self._lines = {entry.key: entry.line for entry in entries}
        self._path = path
        self._errors: list[ConfigError] = []
        self._warnings: list[str] = []

    @contextmanager
    def collected(self) -> Iterator[None]:
        """Collect the ConfigError that ends the block."""
        try:
            yield
        except ConfigErrors as several:
            self._warnings += several.warnings
            for error in several.errors:
                self.add(error)
        except ConfigError as error:
            self.add(error)

    def add(self, error: ConfigError) -> None:
        """Collect an error; one that was collected already is left out."""
        line = error.line or self._lines.get(_FIRST_WORD.split(error.reason, maxsplit=1)[0], 0)
        self._warnings += error.warnings
        error = ConfigError(error.reason, path=error.path or self._path, line=line)
        if str(error) not in map(str, self._errors):
            self._errors.append(error)

    def raise_all(self, warnings: Sequence[str] = ()) -> None:
        """Raise what was collected, if anything was.

        Args:
          warnings: of the configuration, to be shown with its errors.
        Raises: ConfigError: the one that was collected; ConfigErrors: several were.
        """
        errors = sorted(self._errors, key=lambda error: error.line)
        if errors:
            raised = ConfigErrors(errors) if len(errors) > 1 else errors[0]
            raised.warnings = [*self._warnings, *warnings]
            raise raised


class Entry(NamedTuple):
    """One `key = value` of a file, escapes resolved, `line` (1-based) where it starts."""

    key: str
    value: str
    line: int


class KnownKey(NamedTuple):
    """A key of RocketMQ, and the effect of trocket's not using it."""

    key: str
    kind: str  # bool, int, long, double, str, enum
    default: str  # "-" for none; in brackets when it depends on the machine
    important: bool  # RocketMQ prints it with -m
    effect: str  # logged when the key is set and not supported
    is_ours: bool = False  # trocket's own: RocketMQ does not know it


class Configured(NamedTuple):
    """The content of a file: the configurations in the given order, and a line per warning."""

    configs: tuple[Any, ...]
    warnings: list[str]


class Bounds(NamedTuple):
    """A range of whole numbers, both ends included."""

    minimum: int
    maximum: int


ANY_END: Final = Bounds(INT64_MIN, INT64_MAX)
"""A number outside of its key's range is replaced by the nearest end."""


def setting(
    default: Any = dataclasses.MISSING,
    *,
    minimum: int | None = None,
    maximum: int | None = None,
    live: bool | Bounds = False,
    guarded: str = "",
    secret: bool = False,
    key: str = "",
    clamp: Bounds | None = ANY_END,
) -> Any:
    """A dataclass field with the rules of its key.

    A key that is neither `live` nor `guarded` is read at the start only; see `live_config`.

    Args:
      default: as in `dataclasses.field`.
      minimum, maximum: the allowed range of a number, both included; None: as wide as Java's long.
        A file's number outside of it is an error for a key of trocket's own. For a key of RocketMQ,
        which checks no ranges, the nearest number is used, with a warning.
      live: whether a request may change the key while the server runs, and it takes effect at
        once; a range that is narrower than the file's is allowed to requests.
      guarded: why no request may ever change it, in words that follow "it".
      secret: whether the value is hidden from requests, logs and `repr`.
      key: RocketMQ's key, where it does not follow from the field's name.
      clamp: the numbers that are used below and above the range, where those at its ends would
        mean something else than RocketMQ makes of the file's number; None: the number is an error,
        because RocketMQ does not start with it, either, or would lose data.
    """
    bounds = {"minimum": minimum, "maximum": maximum}
    metadata: dict[str, Any] = {name: bound for name, bound in bounds.items() if bound is not None}
    if live:
        metadata["live"] = live
    if guarded:
        metadata["guarded"] = guarded
    if secret:
        metadata["secret"] = secret
    if key:
        metadata["key"] = key
    if clamp is not ANY_END:
        metadata["clamp"] = clamp
    return dataclasses.field(default=default, metadata=metadata, repr=not secret)


def key_of(field: dataclasses.Field[Any]) -> str:
    """RocketMQ's key of a dataclass field: the name in camel case, but `brokerIP1`, `checkCRC…`.

    A field may have another key, see `setting`.
    """
    own: str = field.metadata.get("key", "")
    if own:
        return own
    first, *rest = field.name.split("_")
    return first + "".join(_CAPITALS.get(word, word[:1].upper() + word[1:]) for word in rest)


def parse_properties(text: str, *, path: str = "") -> list[Entry]:
    r"""The entries of a properties file, in the file's order, repeated keys included.

    `#` or `!` begins a comment line; `=`, `:` or blanks separate key and value; an odd number
    of `\` at the end of a line continues it; `\t \n \r \f \uXXXX` are escapes and `\` before any
    other character is that character. Values keep blanks at their end, as in Java.

    Args:
      text: the file's text. Java reads ISO-8859-1; see `decode`.
      path: for errors only.
    Raises: ConfigError: a broken \u escape, or a string of more than TEXT_SIZE_MAX characters.
    Source: java.util.Properties.load, Java SE 17 API documentation.
    """
    if len(text) > TEXT_SIZE_MAX:
        raise ConfigError(f"{len(text)} characters are more than {TEXT_SIZE_MAX}", path=path)
    entries = []
    for line, logical in _logical_lines(text):
        end = _key_end(logical)
        value_start = end
        while value_start < len(logical) and logical[value_start] in _BLANKS:
            value_start += 1
        if value_start < len(logical) and logical[value_start] in "=:":
            value_start += 1
            while value_start < len(logical) and logical[value_start] in _BLANKS:
                value_start += 1
        key = _unescape(logical[:end], path, line)
        entries.append(Entry(key, _unescape(logical[value_start:], path, line), line))
    return entries


def decode(content: bytes) -> str:
    """The text of a configuration file: ISO-8859-1, as Java reads it, so never an error.

    A path with other letters must be written with escapes of the form backslash u, as for Apache.
    """
    return content.decode("latin-1")


def configure(
    entries: Sequence[Entry],
    configs: Sequence[Any],
    known: Callable[[], Mapping[str, KnownKey]],
    *,
    path: str = "",
    problems: Problems | None = None,
    clamps: bool = True,
) -> Configured:
    """Copies of dataclass instances with a file's entries in them.

    A key that two of the dataclasses have goes into both, as with Apache. Of a repeated key the
    last one counts, as in Java, and a warning says so.

    Args:
      configs: dataclass instances that hold the defaults.
      known: gives RocketMQ's keys by name; called only if some key is no field.
      path: for messages only.
      problems: gets the errors, and wrong values keep their defaults; None: the first is raised.
      clamps: whether a number outside of the range of RocketMQ's key is replaced, see `setting`.
    Raises: ConfigError: an unknown key, or a value that is not of its key's type or range.
    """
    noted = problems.collected if problems is not None else nullcontext
    fields: dict[str, list[tuple[int, dataclasses.Field[Any], Any]]] = {}
    for index, config in enumerate(configs):
        types = typing.get_type_hints(type(config))
        for field in dataclasses.fields(config):
            fields.setdefault(key_of(field), []).append((index, field, types[field.name]))
    values: list[dict[str, Any]] = [{} for _ in configs]
    warnings: list[str] = []
    lines: dict[str, int] = {}
    for entry in entries:
        where = at(path, entry.line)
        if entry.key in lines:
            warnings.append(
                f"{where}{entry.key} is set again (line {lines[entry.key]}); this one counts"
            )
        elif entry.key not in fields:
            fact = known().get(entry.key)
            if fact is not None:
                warnings.append(f"{where}{entry.key} has no effect: {fact.effect}")
            elif (other := other_file_of(entry.key)) is not None:
                warnings.append(f"{where}{entry.key} has no effect: it is a key of {other}")
            else:
                with noted():
                    raise _unknown(entry, [*fields, *known()], path)
        lines[entry.key] = entry.line
        for index, field, kind in fields.get(entry.key, ()):
            usable = _clamped(entry, field, known) if clamps else entry
            if usable is not entry:
                warnings.append(
                    f"{where}{entry.key}={entry.value.strip()} is outside of what works here, "
                    f"{_range(field)}: {usable.value} is used"
                )
            with noted():
                values[index][field.name] = _value(usable, field, kind, path)
    copies = tuple(
        dataclasses.replace(config, **changed)
        for config, changed in zip(configs, values, strict=True)
    )
    return Configured(copies, warnings)


def is_address(text: str) -> bool:
    """Whether a string is `host:port`, with an IPv6 address in brackets, and a port above 0."""
    match = _ADDRESS.fullmatch(text)
    return match is not None and 0 < int(match[1]) <= 65_535


def to_properties(config: Any) -> list[tuple[str, str]]:
    """Key and value of every field as a file would have them, fields that are None left out.

    Parsing them back gives an equal configuration.
    """
    pairs = []
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if value is not None:
            pairs.append((key_of(field), _escape(_text(value))))
    return pairs


def to_text(config: Any, keys: Collection[str]) -> bytes:
    """The body of a server's answer about its settings: a line `key=value` for each of the keys
    that has a value, sorted."""
    pairs = sorted((key, value) for key, value in to_properties(config) if key in keys)
    return "".join(f"{key}={value}\n" for key, value in pairs).encode()


def live_keys(config: type[Any]) -> frozenset[str]:
    """The keys of a configuration's class that may change while the server runs; see `setting`."""
    return frozenset(
        key_of(field) for field in dataclasses.fields(config) if "live" in field.metadata
    )


def property_line(key: str, value: str) -> str:
    """One line of a properties file with its end; the value is escaped as necessary."""
    return f"{key}={_escape(value)}\n"


def at(path: str, line: int = 0) -> str:
    """Where an error or a warning is, as the beginning of its text; "": nowhere.

    Args:
      path: the file; "" if there is none.
      line: 1-based; 0: no single line.
    """
    if not path:
        return f"line {line}: " if line else ""
    return f"{path}, line {line}: " if line else f"{path}: "


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Number and text of each line with its continuations, comments and blank lines left out."""
    start, logical = 0, ""
    for number, natural in enumerate(re.split(r"\r\n|\r|\n", text), start=1):
        part = natural.lstrip(_BLANKS)
        if not logical:
            start = number
            if not part or part[0] in "#!":
                continue
        continues = (len(part) - len(part.rstrip("\\"))) % 2
        logical += part[: len(part) - continues]
        if not continues:
            # A line of one backslash continues nothing, as in Java: what follows may be a comment.
            if logical:
                yield start, logical
            logical = ""
    if logical:
        yield start, logical


def _key_end(logical: str) -> int:
    position = 0
    while position < len(logical):
        character = logical[position]
        if character in "=:" or character in _BLANKS:
            return position
        position += 2 if character == "\\" else 1
    return len(logical)


def _unescape(raw: str, path: str, line: int) -> str:
    if "\\" not in raw:
        return raw
    out = []
    position = 0
    while position < len(raw):
        character = raw[position]
        position += 1
        if character == "\\":
            character = raw[position : position + 1]
            position += 1
            if character == "u":
                digits = raw[position : position + 4]
                if not _HEXADECIMAL.fullmatch(digits):
                    reason = f"\\u must be followed by four hexadecimal digits, not by {digits!r}"
                    raise ConfigError(reason, path=path, line=line)
                character = chr(int(digits, 16))
                position += 4
            else:
                character = _ESCAPES.get(character, character)
        out.append(character)
    # Java's \\u are UTF-16: two of them may be one character.
    return "".join(out).encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _escape(value: str) -> str:
    escaped = value.replace("\\", "\\\\")
    for letter, character in _ESCAPES.items():
        escaped = escaped.replace(character, "\\" + letter)
    if escaped[:1] in ("=", ":", " "):
        escaped = "\\" + escaped
    return "".join(c if " " <= c <= "~" else _escaped(c) for c in escaped)


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, enum.Enum):
        return value.name
    return str(value)


_FILES: Final[Mapping[str, str]] = {
    "keys/controller.txt": "controller.conf, the file of the controller",
    "keys/namesrv.txt": "namesrv.conf, the file of the name server",
    "keys/store.txt": "broker.conf, the file of the broker",
    "keys/broker.txt": "broker.conf, the file of the broker",
    "other_files.txt": "",
}
"""By table of keys, see `known_keys`: the file that has them; "": the table's sections say it."""


@cache
def _other_files() -> Mapping[str, str]:
    """Keys of RocketMQ's programs, each with the file in which it belongs."""
    files: dict[str, str] = {}
    for table, file in _FILES.items():
        section = ""
        for line in (Path(__file__).parent / table).read_text(encoding="ascii").splitlines():
            if line.startswith("["):
                section = line.strip("[]")
            elif line and not line.startswith("#"):
                files[line.split(" ")[0].rstrip("!")] = file or section
    return files


def other_file_of(key: str) -> str | None:
    """The file of another program that has a key; None: no file has it.

    A server asks for keys that its own file does not have.
    """
    return _other_files().get(key)


def keys_of_file(file: str) -> list[str]:
    """The keys that only one program's file has, by a section of `other_files.txt`."""
    return [key for key, each in _other_files().items() if each == file]


def _unknown(entry: Entry, names: Sequence[str], path: str) -> ConfigError:
    import difflib  # 10 ms that only an error costs

    wanted = entry.key[:_KEY_SHOWN_MAX]
    by_lower = {name.lower(): name for name in names}
    nearest = difflib.get_close_matches(wanted.lower(), by_lower, n=1, cutoff=_NEAR)
    hint = f"; the nearest key there is: {by_lower[nearest[0]]}" if nearest else ""
    return ConfigError(f"unknown key {wanted!r}{hint}", path=path, line=entry.line)


def _clamped(
    entry: Entry, field: dataclasses.Field[Any], known: Callable[[], Mapping[str, KnownKey]]
) -> Entry:
    """The entry, or one with a number that is usable here if RocketMQ takes the entry's."""
    text = entry.value.strip()
    lowest, highest = _ends(field)
    clamp = field.metadata.get("clamp", ANY_END)
    if (lowest, highest) == ANY_END or clamp is None or not _INTEGER.fullmatch(text):
        return entry
    number = int(text)
    if lowest <= number <= highest:
        return entry
    fact = known().get(entry.key)
    if fact is None or fact.is_ours:
        return entry
    used = max(lowest, clamp.minimum) if number < lowest else min(highest, clamp.maximum)
    return entry._replace(value=str(used))


def _ends(field: dataclasses.Field[Any]) -> Bounds:
    """The allowed range of a number."""
    rules = field.metadata
    return Bounds(rules.get("minimum", INT64_MIN), rules.get("maximum", INT64_MAX))


def _range(field: dataclasses.Field[Any]) -> str:
    """The ends of a range in words; "" if there are none."""
    lowest, highest = field.metadata.get("minimum"), field.metadata.get("maximum")
    ends = [
        *([] if lowest is None else [f"at least {lowest}"]),
        *([] if highest is None else [f"at most {highest}"]),
    ]
    return " and ".join(ends)


def _value(entry: Entry, field: dataclasses.Field[Any], kind: Any, path: str) -> Any:
    text = entry.value.strip()
    options = [option for option in typing.get_args(kind) if option is not type(None)]
    kind = options[0] if options else kind
    try:
        if kind is bool:
            return {"true": True, "false": False}[text.lower()]
        if kind is int:
            return _integer(text, field)
        if kind is float:
            number = float(text)
            if not math.isfinite(number):
                raise ValueError(text)
            return number
        if issubclass(kind, enum.Enum):
            return kind[text]
    except (KeyError, ValueError):
        reason = f"{entry.key} must be {_wanted(kind, field)}, not {text[:_KEY_SHOWN_MAX]!r}"
        raise ConfigError(reason, path=path, line=entry.line) from None
    return kind(text) if issubclass(kind, PurePath) else text


def _integer(text: str, field: dataclasses.Field[Any]) -> int:
    if not _INTEGER.fullmatch(text):
        raise ValueError(text)
    number = int(text)
    lowest, highest = _ends(field)
    if not lowest <= number <= highest:
        raise ValueError(text)
    return number


def _wanted(kind: Any, field: dataclasses.Field[Any]) -> str:
    if kind is bool:
        return "true or false"
    if kind is int:
        return f"a plain whole number {_range(field)}".rstrip()
    if kind is float:
        return "a number"
    return "one of " + ", ".join(member.name for member in kind)
