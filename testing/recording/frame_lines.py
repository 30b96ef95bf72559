"""Frames as text: one line for people, or one JSON object for programs. Pure.

::

    12:01:02.345 c1 > SEND_MESSAGE_V2 310 #17 JAVA V5_5_0 {a=G, b=Orders, e=0} body 5 B "hello"
    12:01:02.347 c1 < SUCCESS 0 to #17 SEND_MESSAGE_V2 {msgId=7F00…, queueOffset=3}

`c1` is the connection, `>` goes to the server, `<` comes from it; `#17` is the opaque. Malformed
bytes raise nothing: they are shown as hex. Secrets (`SECRETS`) are masked with as many stars.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from ...remoting.codec import (
    RemotingCommand,
    SerializeType,
    decode_frame,
)
from ...remoting.errors import RemoteProtocolError
from ...remoting.language_codes import LanguageCode
from ...remoting.mq_version import version_name
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import ResponseCode
from .frame_bodies import body_text, shortened
from .frame_stream import SeenFrame, request_code_of

FIELD_CHARS_MAX: Final = 120
"""Characters of one field's value, and of a remark, in a line."""
FIELDS_MAX: Final = 40
"""Fields of a header in a line."""
HEX_BYTES_MAX: Final = 48
"""Bytes shown in hex of data that is not a frame."""

SECRETS: Final = frozenset({"secretkey", "signature", "securitytoken", "password"})
"""Names of header fields and body members whose values are masked; case does not matter."""

_STAR: Final = b"*"
_NAMES: Final = b"|".join(name.encode() for name in sorted(SECRETS))
_MEMBER: Final = re.compile(rb'(?i)("\w*(?:%s)"\s*:\s*")((?:[^"\\]|\\.)*)' % _NAMES)
_LINE: Final = re.compile(rb"(?i)(\b\w*(?:%s)\s*=\s*)([^\s,{}\"]+)" % _NAMES)
_LANGUAGES: Final = {int(code): code.name for code in LanguageCode}
_REQUESTS: Final = {int(code): code.name for code in RequestCode}
_RESPONSES: Final = {int(code): code.name for code in ResponseCode}


def frame_line(frame: SeenFrame | bytes, *, request_code: int | None = None) -> str:
    """One line, without a newline.

    Args:
      frame: as reported by a relay, or the bytes of a whole frame; the line has no time then.
      request_code: for the bytes of an answer, that of its request, needed to decode the body.
    """
    seen = frame if isinstance(frame, SeenFrame) else _seen(frame, request_code)
    time_text = f"{clock_text(seen.at_ms)} " if seen.at_ms else ""
    arrow = f"{f'c{seen.connection} ' if seen.connection else ''}{'>' if seen.to_server else '<'}"
    try:
        if not seen.is_frame:
            raise RemoteProtocolError("no frame")
        command = decode_frame(covered(seen.data))
    except RemoteProtocolError as error:
        rest = len(seen.data) - HEX_BYTES_MAX
        hexed = seen.data[:HEX_BYTES_MAX].hex() + ("…" if rest > 0 else "")
        where = f"{len(seen.data)} B at {seen.offset}"
        return f"{time_text}{arrow} ({shortened(error.reason, FIELD_CHARS_MAX)}) {where}: {hexed}"
    return f"{time_text}{arrow} {_command_text(command, seen.request_code)}"


def _seen(data: bytes, request_code: int | None) -> SeenFrame:
    """A frame given as bytes only; its response flag says in which direction it went."""
    try:
        command = decode_frame(data)
    except RemoteProtocolError:
        return SeenFrame(data, 0, True, is_frame=False)
    if not command.is_response:
        request_code = request_code_of(command)
    return SeenFrame(data, 0, not command.is_response, request_code=request_code)


def clock_text(at_ms: int) -> str:
    """A moment as HH:MM:SS.mmm in local time."""
    moment = datetime.fromtimestamp(at_ms // 1000)
    return f"{moment:%H:%M:%S}.{at_ms % 1000:03d}"


def _command_text(command: RemotingCommand, request_code: int | None) -> str:
    parts = []
    if command.is_response:
        parts += [_named(_RESPONSES, command.code), f"to #{command.opaque}"]
        if request_code is not None:
            parts.append(_REQUESTS.get(request_code, str(request_code)))
    else:
        code = request_code_of(command)
        language = _LANGUAGES.get(command.language, f"language {command.language}")
        parts += [_named(_REQUESTS, code), f"#{command.opaque}", language]
        parts.append(version_name(command.version))
        request_code = code
    if command.is_oneway:
        parts.append("oneway")
    if command.serialize_type == SerializeType.ROCKETMQ:
        parts.append("binary")
    if command.ext_fields:
        parts.append(_fields_text(command.ext_fields))
    if command.remark:
        parts.append(json.dumps(shortened(command.remark, FIELD_CHARS_MAX), ensure_ascii=False))
    if command.body:
        parts.append(f"body {len(command.body)} B {body_text(command, request_code)}")
    return _one_line(" ".join(parts))


def _named(names: Mapping[int, str], code: int) -> str:
    name = names.get(code)
    return str(code) if name is None else f"{name} {code}"


def _fields_text(fields: Mapping[str, str]) -> str:
    shown = [
        f"{shortened(name, FIELD_CHARS_MAX)}="
        f"{'*' * len(value) if _is_secret(name) else shortened(value, FIELD_CHARS_MAX)}"
        for name, value in list(fields.items())[:FIELDS_MAX]
    ]
    if len(fields) > FIELDS_MAX:
        shown.append(f"{len(fields) - FIELDS_MAX} more")
    return f"{{{', '.join(shown)}}}"


def _one_line(text: str) -> str:
    """The text without control characters; the separators of properties become `=` and `;`."""
    return "".join(
        char if char.isprintable() else {"\x01": "=", "\x02": ";"}.get(char, " ") for char in text
    )


# ---- secrets -------------------------------------------------------------------------------------


def _is_secret(name: str) -> bool:
    return name.lower().endswith(tuple(SECRETS))


def _stars(match: re.Match[bytes]) -> bytes:
    return match.group(1) + _STAR * len(match.group(2))


def covered(frame: bytes) -> bytes:
    """A whole frame with its secrets masked by stars; the size stays the same.

    Raises: RemoteProtocolError: the bytes are not a whole frame.
    """
    command = decode_frame(frame)
    body_at = len(frame) - len(command.body)
    header = _MEMBER.sub(_stars, frame[:body_at])
    for name, value in command.ext_fields.items():
        if _is_secret(name):
            raw = value.encode("utf-8", "replace")
            binary = name.encode("utf-8", "replace") + len(raw).to_bytes(4, "big")
            header = header.replace(binary + raw, binary + _STAR * len(raw))
    return header + _LINE.sub(_stars, _MEMBER.sub(_stars, command.body))


# ---- JSON ----------------------------------------------------------------------------------------


def frame_object(frame: SeenFrame | bytes, *, request_code: int | None = None) -> dict[str, Any]:
    """A frame as an object for JSON; arguments as for `frame_line`.

    Members that the recordings beside the checkout (golden/wire) have too have the same names:
    `dir`, `peer`, `to`, `code`, `request_code`, `opaque`, `pair`, `serialize`, `oneway`,
    `header_text`, `body_len`, `frame_hex`. Bytes that are not a frame have `error` instead of the
    members of a header.
    """
    seen = frame if isinstance(frame, SeenFrame) else _seen(frame, request_code)
    sender, receiver = (seen.client, seen.server)[:: 1 if seen.to_server else -1]
    found: dict[str, Any] = {
        "at_ms": seen.at_ms,
        "connection": seen.connection,
        "peer": sender,
        "to": receiver,
        "offset": seen.offset,
    }
    try:
        if not seen.is_frame:
            raise RemoteProtocolError("no frame")
        data = covered(seen.data)
        command = decode_frame(data)
    except RemoteProtocolError as error:
        return {**found, "error": error.reason, "frame_hex": seen.data.hex()}
    # A server numbers its own requests, so its opaques may equal the client's.
    is_servers = seen.to_server is command.is_response
    names = _RESPONSES if command.is_response else _REQUESTS
    code = command.code if command.is_response else request_code_of(command)
    return {
        **found,
        "dir": "response" if command.is_response else "request",
        "code": command.code,
        "name": names.get(code, ""),
        "request_code": seen.request_code,
        "opaque": command.opaque,
        "pair": f"c{seen.connection}/{'s' if is_servers else ''}{command.opaque}",
        "serialize": SerializeType(command.serialize_type).name,
        "oneway": command.is_oneway,
        "flag": command.flag,
        "language": _LANGUAGES.get(command.language, str(command.language)),
        "version": command.version,
        "remark": command.remark,
        "ext_fields": dict(command.ext_fields),
        "header_text": _header_text(command, data),
        "body_len": len(command.body),
        "body": base64.b64encode(command.body).decode(),
        "frame_hex": data.hex(),
    }


def _header_text(command: RemotingCommand, data: bytes) -> str:
    """A JSON header as it stands in the frame; a ROCKETMQ header converted to JSON."""
    if command.serialize_type == SerializeType.JSON:
        return data[8 : len(data) - len(command.body)].decode("utf-8", "replace")
    header: dict[str, object] = {
        "code": command.code,
        "language": _LANGUAGES.get(command.language, str(command.language)),
        "version": command.version,
        "opaque": command.opaque,
        "flag": command.flag,
    }
    if command.remark is not None:
        header["remark"] = command.remark
    if command.ext_fields:
        header["extFields"] = dict(command.ext_fields)
    return json.dumps(header, ensure_ascii=False, separators=(",", ":"))
