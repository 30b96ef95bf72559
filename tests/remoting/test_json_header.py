"""JSON headers whose members have other types than RocketMQ's clients write.

The tables are the answers of RemotingCommand.decode of RocketMQ 5.5.0 to these headers.
"""

from __future__ import annotations

import pytest

from trocket.remoting.codec import FrameDecoder, RemotingCommand, frame_start
from trocket.remoting.language_codes import LanguageCode

USUAL = {
    "code": "310", "language": '"JAVA"', "version": "435", "opaque": "7", "flag": "0",
    "serializeTypeCurrentRPC": '"JSON"', "remark": '"r"', "extFields": '{"b":"T"}',
}  # fmt: skip
REFUSED = object()
"""Apache closes the connection."""

NUMBERS = {
    "null": 0, '""': 0, "1": 1, '"1"': 1, '"x"': REFUSED, "true": 1, "1.5": 1, '{"a":1}': 0,
    "[1]": 1, "99999999999": REFUSED, '"JAVA"': REFUSED, "-1": -1, "{}": 0, '"true"': 1, "2.0": 2,
    '"1.5"': 1, '"null"': 0, '" 1 "': REFUSED, "1e2": 100, "[5]": 5, "[1,2]": REFUSED,
    "[]": REFUSED, '["7"]': 7, "[null]": REFUSED, "[[3]]": REFUSED, "false": 0, '"false"': 0,
    '"True"': REFUSED, "1e10": 2**31 - 1, '"1e2"': 100, "-1.9": -1, '"-5"': -5, '"+5"': 5, "0.7": 0,
    '"99999999999"': REFUSED, '"NULL"': REFUSED, '"1.0"': 1, '"1.5x"': REFUSED,
}  # fmt: skip
LANGUAGES = {
    "null": "OTHER", '""': "OTHER", "1": "CPP", '"x"': "OTHER", "true": REFUSED, "1.5": "CPP",
    '{"a":1}': REFUSED, "[1]": REFUSED, "99999999999": REFUSED, '"JAVA"': "JAVA", "-1": REFUSED,
    '"1.5"': "OTHER", '"null"': "OTHER", "2.0": "DOTNET", "1e2": REFUSED, "14": REFUSED,
    "13": "NODE_JS", "0": "JAVA", None: "JAVA",
}  # fmt: skip
SERIALIZATIONS = {
    "null": 0, '""': 0, "1": 0, '"1"': 0, '"x"': 0, "true": REFUSED, "1.5": 0, '{"a":1}': REFUSED,
    "[1]": REFUSED, "99999999999": REFUSED, "-1": REFUSED, "2.0": REFUSED, None: 0,
}  # fmt: skip
REMARKS = {
    "null": None, '""': "", "1": "1", '"1"': "1", '"x"': "x", "true": "true", "1.5": "1.5",
    '{"a":1}': '{"a":1}', "[1]": "[1]", "99999999999": "99999999999", "-1": "-1", "{}": "{}",
    "2.0": "2.0", '"null"': "null", "1e2": "100.0", None: None,
}  # fmt: skip
FIELDS = {
    "null": {}, '""': {}, '"null"': {}, "1": REFUSED, '"1"': REFUSED, "true": REFUSED,
    "1.5": REFUSED, '{"a":1}': {"a": "1"}, "[1]": REFUSED, "{}": {}, None: {},
    '{"a":null,"b":true,"c":1.5,"d":{"x":1},"e":[1,"y"],"f":12345678901234567890}':
        {"b": "true", "c": "1.5", "d": '{"x":1}', "e": '[1,"y"]', "f": "12345678901234567890"},
}  # fmt: skip
CASES = [
    *((name, text, value) for name in ("code", "flag", "version") for text, value in
      (NUMBERS | {None: 0}).items()),
    *(("opaque", text, value) for text, value in NUMBERS.items()),
    *(("language", text, value) for text, value in LANGUAGES.items()),
    *(("serializeTypeCurrentRPC", text, value) for text, value in SERIALIZATIONS.items()),
    *(("remark", text, value) for text, value in REMARKS.items()),
    *(("extFields", text, value) for text, value in FIELDS.items()),
]  # fmt: skip


def member_of(command: RemotingCommand, name: str) -> object:
    if name == "language":
        return LanguageCode(command.language).name
    if name == "extFields":
        return dict(command.ext_fields)
    return getattr(command, {"serializeTypeCurrentRPC": "serialize_type"}.get(name, name))


@pytest.mark.parametrize(("name", "text", "value"), CASES)
def test_a_member_of_another_type_is_read_as_apache_reads_it(name, text, value):
    members = {**USUAL, name: text}
    pairs = [f'"{key}":{each}' for key, each in members.items() if each is not None]
    header = ("{" + ",".join(pairs) + "}").encode()
    decoder = FrameDecoder()
    commands = decoder.receive_data(frame_start(len(header), 0, 0) + header)
    if value is REFUSED:
        assert decoder.error is not None
        assert f"the member {name} is" in decoder.error.reason
    else:
        assert decoder.error is None
        assert member_of(commands[0], name) == value


def test_a_header_that_is_no_object_is_refused():
    decoder = FrameDecoder()
    decoder.receive_data(frame_start(3, 0, 0) + b"[1]")
    assert decoder.error is not None
    assert "it is a list, not an object" in decoder.error.reason
