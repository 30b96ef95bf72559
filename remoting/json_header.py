"""The JSON header of a frame, read as strictly as RocketMQ reads it. Pure.

Nearly all headers are plain: the values have the types that RocketMQ's clients write. The others
are read by the rules of fastjson, which takes null and "" for 0, for example; a connection is
closed only where Apache's server closes it, too.

Source: what RemotingCommand.decode of RocketMQ 5.5.0 (fastjson 2.0.59) answered to each kind of
value in each member.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

import msgspec

from ..common.java_integers import INT32_MAX, INT32_MIN
from . import fastjson
from .errors import RemoteProtocolError
from .language_codes import LanguageCode
from .number_fields import INT32

LANGUAGES: Final = {language.name: int(language) for language in LanguageCode}
OTHER: Final = int(LanguageCode.OTHER)

_LANGUAGE_NAMES: Final = {code: name for name, code in LANGUAGES.items()}
_SERIALIZE_TYPES: Final = {0: "JSON", 1: "ROCKETMQ"}
_WHOLE: Final = re.compile(r"[+-]?\d{1,20}", re.ASCII)
_DECIMAL: Final = re.compile(r"[+-]?\d{1,20}(\.\d{0,20})?([eE][+-]?\d{1,3})?", re.ASCII)
_NUMBERS_OF_TEXTS: Final = {"": 0, "null": 0, "true": 1, "false": 0}


class JsonHeader(msgspec.Struct, gc=False):
    """The JSON header, with the members in the order in which Java peers write them."""

    code: Annotated[int, INT32.meta] = 0
    extFields: dict[str, str] | msgspec.UnsetType | None = msgspec.UNSET
    flag: Annotated[int, INT32.meta] = 0
    language: str = "JAVA"
    opaque: Annotated[int, INT32.meta] = 0
    remark: str | msgspec.UnsetType | None = msgspec.UNSET
    serializeTypeCurrentRPC: str = "JSON"
    version: Annotated[int, INT32.meta] = 0


decode_plain: Final = msgspec.json.Decoder(JsonHeader).decode


def decode_loose(text: bytes, start: int) -> JsonHeader:
    """Decode a header that is not plain: with bare keys, or values of other types.

    Args:
      start: the position for the error.
    Raises: RemoteProtocolError: RocketMQ would not read it, either.
    """
    try:
        tree: Any = fastjson.loads(text, tolerant_size_max=fastjson.REQUEST_TOLERANT_SIZE_MAX)
    except RemoteProtocolError as error:
        raise RemoteProtocolError(f"JSON header: {error.reason}", start) from error
    if not isinstance(tree, dict):
        kind = type(tree).__name__
        raise RemoteProtocolError(f"JSON header: it is a {kind}, not an object", start)
    header = JsonHeader()
    # Other members are ignored, as fastjson does.
    for name, read in _READERS.items():
        if name in tree:
            try:
                setattr(header, name, read(tree[name]))
            except ValueError as error:
                reason = f"JSON header: the member {name} is {error}"
                raise RemoteProtocolError(reason, start) from error
    return header


def _number(value: object) -> int:
    """A value as an int32; a fraction is cut off. Raises: ValueError."""
    if isinstance(value, list) and len(value) == 1 and not isinstance(value[0], list | dict):
        if value[0] is None:
            raise ValueError("[null], not a number")
        value = value[0]
    if value is None or isinstance(value, dict):
        return 0
    if isinstance(value, str):
        if value in _NUMBERS_OF_TEXTS:
            return _NUMBERS_OF_TEXTS[value]
        if _WHOLE.fullmatch(value):
            value = int(value)
        elif _DECIMAL.fullmatch(value):
            value = float(value)
    if isinstance(value, float):
        # As Java casts; a number without end was refused by the reader.
        return int(max(min(value, INT32_MAX), INT32_MIN))
    if not isinstance(value, int):
        raise ValueError(f"{_shown(value)}, not a number")
    if not INT32_MIN <= value <= INT32_MAX:
        raise ValueError(f"{value}, not a number of 32 bits")
    return int(value)


def _enum_name(value: object, names: dict[int, str]) -> str:
    """The name of an enum's constant, given by name or number; "" if there is none with this name.

    Raises: ValueError.
    """
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"{_shown(value)}, not a name")
    if isinstance(value, str):
        # fastjson takes a string of digits as the ordinal, too.
        if not _WHOLE.fullmatch(value) or value.startswith("-"):
            return value
        value = _number(value)
        return names.get(value, "")
    name = names.get(_number(value))
    if name is None:
        raise ValueError(f"{value}, which is not the number of a name")
    return name


def _language(value: object) -> str:
    return _enum_name(value, _LANGUAGE_NAMES)


def _serialize_type(value: object) -> str:
    return _enum_name(value, _SERIALIZE_TYPES)


def _remark(value: object) -> str | None:
    return None if value is None else _text(value)


def _fields(value: object) -> dict[str, str] | None:
    if value is None or value in ("", "null"):
        return None
    if not isinstance(value, dict):
        raise ValueError(f"{_shown(value)}, not an object")
    return {str(name): _text(each) for name, each in value.items() if each is not None}


def _text(value: object) -> str:
    """A value as a string: a string as it is, another one as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _shown(value: object) -> str:
    return f"{value!r:.40}"


_READERS: Final = {
    "code": _number,
    "extFields": _fields,
    "flag": _number,
    "language": _language,
    "opaque": _number,
    "remark": _remark,
    "serializeTypeCurrentRPC": _serialize_type,
    "version": _number,
}
"""How each member of a header that is not plain is read."""
