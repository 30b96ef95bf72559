"""Structs whose fields are all filled, found by their annotations: for tests of every field."""

from __future__ import annotations

import enum
import types
from collections.abc import Callable, Mapping
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from trocket.console.shown_text import Shown, shown

Options = tuple[Any, ...]
NUMBERS: Mapping[Any, Any] = {int: 1, float: 0.5}


class Filler:
    """Makes a struct, and notes the paths of its strings and of its choices.

    Args:
      text: gives the string of a path, such as "queues[].broker_name".
      chosen: which option is taken at the path of a choice; else it is the first.
      closed: options of a field that is not any string, by path; `str` is any string.

    Attributes:
      strings: paths of strings, in the order of the fields.
      choices: how many options each path has: members of an enum, True and False, None or not.
    """

    def __init__(
        self,
        text: Callable[[str], str],
        chosen: Mapping[str, int],
        closed: Mapping[str, Options],
    ) -> None:
        self._text = text
        self._chosen = chosen
        self._closed = closed
        self.strings: dict[str, None] = {}
        self.choices: dict[str, int] = {}

    def make(self, of: Any, path: str = "") -> Any:
        """A value of a type."""
        if path in self._closed:
            option = self._choice(path, self._closed[path])
            return self._string(path) if option is str else option
        if of in NUMBERS:
            return NUMBERS[of]
        if of is bool:
            return self._choice(path, (True, False))
        if of is Any:
            return self._string(path)
        if isinstance(of, type) and not get_origin(of):
            return self._of_class(of, path)
        return self._of_form(get_origin(of), get_args(of), path)

    def _of_class(self, of: type, path: str) -> Any:
        if of is str:
            return self._string(path)
        if of is bytes:
            return self._string(path).encode("utf-8", "replace")
        if of is Shown:
            return shown(self._string(path), has_lines=True)
        if of is types.NoneType:
            return None
        if issubclass(of, enum.Enum):
            return self._choice(path, tuple(of))
        if not (issubclass(of, msgspec.Struct) or hasattr(of, "_fields")):
            raise TypeError(f"{path}: no value of {of} is known here")
        hints = get_type_hints(of)
        names = getattr(of, "__struct_fields__", None) or of._fields  # type: ignore[attr-defined]
        return of(**{name: self.make(hints[name], f"{path}.{name}".strip(".")) for name in names})

    def _of_form(self, form: Any, of: tuple[Any, ...], path: str) -> Any:
        if form in (Union, types.UnionType):
            options = sorted(of, key=lambda each: each is types.NoneType)
            return self.make(self._choice(f"{path}?", tuple(options)), path)
        if form is Literal:
            return self._choice(path, of)
        if form is list or (form is tuple and of[1:] == (...,)):
            return form([self.make(of[0], f"{path}[]") for _ in range(2)])
        if form is tuple:
            return tuple(self.make(each, f"{path}.{n}") for n, each in enumerate(of))
        if form in (dict, Mapping):
            return {self.make(of[0], f"{path}.keys"): self.make(of[1], f"{path}.values")}
        raise TypeError(f"{path}: no value of {form} is known here")

    def _choice(self, path: str, options: Options) -> Any:
        # Both sides of a plan are made alike.
        key = path.replace(".before.", ".after.")
        self.choices[key] = len(options)
        return options[self._chosen.get(key, 0)]

    def _string(self, path: str) -> str:
        self.strings[path] = None
        return self._text(path)
