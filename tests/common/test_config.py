"""Properties files: Java's syntax, and keys onto dataclasses."""

from __future__ import annotations

import dataclasses
import enum
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trocket.common.config import (
    TEXT_SIZE_MAX,
    ConfigError,
    KnownKey,
    configure,
    decode,
    key_of,
    parse_properties,
    setting,
    to_properties,
)


class Colour(enum.Enum):
    """An enum as the configurations have them."""

    RED = 1
    GREEN = 2


@dataclass(slots=True)
class Example:
    """One field of each type."""

    colour: Colour = Colour.RED
    folder: Path = Path("/data")
    name: str = ""
    note: str | None = None
    count: int = setting(1, minimum=0, maximum=9)
    ratio: float = 0.5
    check_crc_on_recover: bool = True
    broker_ip1: str = ""


KNOWN = {"waitTime": KnownKey("waitTime", "int", "200", False, "nothing waits here")}


def pairs(text: str) -> list[tuple[str, str]]:
    return [(entry.key, entry.value) for entry in parse_properties(text)]


def read(text: str) -> Example:
    example = configure(parse_properties(text), [Example()], lambda: KNOWN).configs[0]
    assert isinstance(example, Example)
    return example


# Expected values were produced by java.util.Properties of OpenJDK 17.
SYNTAX = {
    "the separators are equals, colon and blanks": ("a=1\nb:2\nc 3\nd\t4", "a1 b2 c3 d4"),
    "blanks around the separator do not count": ("  a  =  1\n\tb : 2", "a1 b2"),
    "only the first separator separates": ("a==1\nb=:2\nc =: 3", "a=1 b:2 c:_3"),
    "blanks at the end of a value stay": ("a=1  ", "a1__"),
    "comments begin with a hash or an exclamation mark": ("#a=1\n  !b=2\nc=#3", "c#3"),
    "a comment is not continued": ("#a\\\nb=2", "b2"),
    "an odd number of backslashes continues a line": ("a=1\\\n   2\\\\\nb=3", "a12\\ b3"),
    "a continued line may look like a comment": ("a=1\\\n#2", "a1#2"),
    "a line of one backslash continues nothing": ("\\\n#b=2\nc=3", "c3"),
    "all three line ends": ("a=1\rb=2\r\nc=3\n\n\rd=4", "a1 b2 c3 d4"),
    "separators in a key are escaped": ("a\\=b=1\nc\\ d=2\ne\\:f 3", "a=b1 c_d2 e:f3"),
    "escapes": ("a=\\u0041\\x\\n\\t\\r\\f|", "aAx\n\t\r\f|"),
    "no value": ("a\nb=\nc:", "a b c"),
    "the last line may be continued by nothing": ("a=1\\", "a1"),
}


@pytest.mark.parametrize(("text", "expected"), SYNTAX.values(), ids=SYNTAX.keys())
def test_the_syntax_is_that_of_java(text: str, expected: str) -> None:
    assert [(k + v).replace(" ", "_") for k, v in pairs(text)] == expected.split(" ")


def test_a_line_number_is_where_the_entry_starts() -> None:
    entries = parse_properties("# first\n\na=1\\\n  2\nb=3\n")
    assert [(entry.key, entry.line) for entry in entries] == [("a", 3), ("b", 5)]


@pytest.mark.parametrize("text", ["a=\\u12", "a=\\u12g4", "\\u=1", "a=\\u+123"])
def test_a_broken_unicode_escape_is_an_error_with_its_line(text: str) -> None:
    with pytest.raises(ConfigError, match=r"x.conf, line 2: .*hexadecimal"):
        parse_properties(f"# \n{text}", path="x.conf")


def test_a_file_beyond_the_limit_is_refused() -> None:
    with pytest.raises(ConfigError, match="more than"):
        parse_properties("#" * (TEXT_SIZE_MAX + 1))


@given(st.text())
def test_any_text_is_entries_or_a_config_error(text: str) -> None:
    try:
        entries = parse_properties(text)
    except ConfigError:
        return
    assert all(entry.line >= 1 for entry in entries)
    assert [entry.line for entry in entries] == sorted(entry.line for entry in entries)


@given(st.binary())
def test_any_bytes_are_text(content: bytes) -> None:
    assert decode(content).encode("latin-1") == content


def test_fields_are_set_by_their_camel_case_keys_and_their_types() -> None:
    example = read(
        "colour=GREEN\nfolder=/x/y\nname = n \nnote=hm\ncount= +3 \nratio=1e-1\n"
        "checkCRCOnRecover=FALSE\nbrokerIP1=192.0.2.1"
    )
    assert example == Example(Colour.GREEN, Path("/x/y"), "n", "hm", 3, 0.1, False, "192.0.2.1")


WRONG = {
    "count=1024 * 1024": "plain whole number at least 0 and at most 9, not '1024 \\* 1024'",
    "count=10": "at most 9",
    "count=-1": "at least 0",
    "count=": "whole number",
    "count=0x3": "whole number",
    "count=1_0": "whole number",
    "count=" + "9" * 5000: "whole number",
    "ratio=nan": "a number",
    "ratio=much": "a number",
    "checkCRCOnRecover=yes": "true or false",
    "colour=red": "one of RED, GREEN",
}


@pytest.mark.parametrize(("text", "expected"), WRONG.items())
def test_a_value_of_another_type_names_key_line_and_what_would_do(text: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected) as caught:
        read("\n" + text)
    assert caught.value.line == 2
    assert text.split("=")[0] in str(caught.value)
    assert len(str(caught.value)) < 250


def test_a_known_key_warns_by_name_and_tells_what_it_means() -> None:
    entries = parse_properties("name=n\nwaitTime=5\n")
    configured = configure(entries, [Example()], lambda: KNOWN, path="b.conf")
    assert configured.warnings == ["b.conf, line 2: waitTime has no effect: nothing waits here"]
    assert configured.configs[0].name == "n"


@pytest.mark.parametrize(
    ("key", "nearest"),
    [("nmae", "name"), ("Count", "count"), ("waittime", "waitTime"), ("checkCRC", "checkCRCOn")],
)
def test_an_unknown_key_is_an_error_that_names_the_nearest(key: str, nearest: str) -> None:
    with pytest.raises(ConfigError, match=f"line 1: unknown key '{key}'; .*: {nearest}"):
        read(f"{key}=1")


def test_an_endless_unknown_key_is_not_repeated_in_full() -> None:
    with pytest.raises(ConfigError) as caught:
        read("x" * 100_000)
    assert len(str(caught.value)) < 250


def test_of_a_repeated_key_the_last_counts_and_a_warning_says_so() -> None:
    configured = configure(parse_properties("count=1\n\ncount=2"), [Example()], lambda: KNOWN)
    assert configured.configs[0].count == 2
    assert configured.warnings == ["line 3: count is set again (line 1); this one counts"]


def test_a_key_of_two_configurations_goes_into_both_and_leaves_the_defaults_alone() -> None:
    defaults = [Example(), Example(name="second")]
    configs = configure(parse_properties("count=2"), defaults, lambda: KNOWN).configs
    assert [config.count for config in configs] == [2, 2]
    assert [config.name for config in configs] == ["", "second"]
    assert [config.count for config in defaults] == [1, 1]


TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@given(
    st.builds(
        Example,
        colour=st.sampled_from(Colour),
        folder=st.just(Path("/a b")),
        name=TEXT.map(str.strip),
        note=st.none() | TEXT.map(str.strip),
        count=st.integers(0, 9),
        ratio=st.floats(allow_nan=False, allow_infinity=False),
        check_crc_on_recover=st.booleans(),
        broker_ip1=st.just("::1"),
    )
)
def test_a_printed_configuration_reads_back_as_itself(example: Example) -> None:
    text = "\n".join(f"{key}={value}" for key, value in to_properties(example))
    assert text.isascii()
    assert read(text) == example


def test_keys_are_spelled_as_rocketmq_spells_them() -> None:
    keys = {field.name: key_of(field) for field in dataclasses.fields(Example)}
    assert keys["check_crc_on_recover"] == "checkCRCOnRecover"
    assert keys["broker_ip1"] == "brokerIP1"
    assert keys["colour"] == "colour"
