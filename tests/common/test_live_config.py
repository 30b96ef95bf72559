"""Changes of a configuration: which are refused, who is told, and how a file is edited."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trocket.common.config import Bounds, ConfigError, KnownKey, parse_properties, setting
from trocket.common.live_config import (
    CHANGE_SIZE_MAX,
    KeyRefusedError,
    LiveConfig,
    edit_properties,
)

KEYS = ["pauseMs", "ratio", "folderPath", "threads"]


@dataclass
class Config:
    pause_ms: int = setting(10, minimum=0, live=Bounds(5, 50))
    ratio: int = setting(75, minimum=1, maximum=100, live=True)
    folder_path: str = setting("/data", guarded="is a path of files")
    threads: int = 4


def _known() -> dict[str, KnownKey]:
    return {"poolSize": KnownKey("poolSize", "int", "1", False, "there are no pools")}


def live(config: Config, *, least_ratio: int = 0) -> LiveConfig:
    def check(changed: Config) -> None:
        if changed.ratio < least_ratio:
            raise ConfigError("ratio is too small")

    return LiveConfig((config,), _known, check=check, server="the server")


def change(config: Config, body: str) -> None:
    changes = live(config)
    changes.apply(changes.plan(body.encode()))


def test_a_change_is_made_in_place_and_only_to_its_keys():
    config = Config()
    changes = live(config)
    first = changes.plan(b"pauseMs=20")
    second = changes.plan(b"ratio=50")
    changes.apply(first)
    changes.apply(second)
    assert config == Config(pause_ms=20, ratio=50)


def test_those_who_subscribed_to_a_changed_key_are_told_once():
    changes = live(Config())
    told: list[str] = []
    changes.subscribe(lambda: told.append("both"), "pauseMs", "ratio")
    changes.subscribe(lambda: told.append("pause"), "pauseMs")
    for call in changes.apply(changes.plan(b"ratio=50")):
        call()
    assert told == ["both"]
    for call in changes.apply(changes.plan(b"ratio=51\npauseMs=6")):
        call()
    assert told == ["both", "both", "pause"]


@pytest.mark.parametrize(
    ("line", "reason", "is_guarded"),
    [
        ("folderPath=/tmp", "folderPath: it is a path of files, so no request may change it", True),
        ("threads=5", "threads: it is read at the start only", False),
        ("rocketmqHome=/tmp", "rocketmqHome", True),
        ("tls.server.mode=disabled", "tls.server.mode: it protects connections", True),
        ("tlsConfigFile=/tmp/x", "tlsConfigFile: it protects connections", True),
    ],
)
def test_a_key_that_may_not_change_is_refused_by_name(line, reason, is_guarded):
    config = Config()
    with pytest.raises(KeyRefusedError, match=reason) as refused:
        change(config, f"ratio=50\n{line}\n")
    assert refused.value.is_guarded is is_guarded
    assert config == Config()


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"pauseMs=4", "pauseMs must be in 5..50 while the server runs, not 4"),
        (b"ratio=101", "ratio must be a plain whole number at least 1 and at most 100"),
        (b"ratio=1.5", "ratio must be a plain whole number"),
        (b"ratios=5", "unknown key 'ratios'; the nearest key there is: ratio"),
        (b"poolSize=5", "poolSize would have no effect: there are no pools"),
        (b"ratio=\xff", "the settings are not UTF-8"),
        (b"ratio=\\u12", "four hexadecimal digits"),
        (b"#" * (CHANGE_SIZE_MAX + 1), f"the limit is {CHANGE_SIZE_MAX}"),
    ],
)
def test_a_wrong_text_is_refused_with_its_reason(body, reason):
    config = Config()
    with pytest.raises(ConfigError, match=reason.replace("(", r"\(")):
        live(config).plan(body)
    assert config == Config()


def test_values_that_do_not_fit_together_are_refused():
    with pytest.raises(ConfigError, match="ratio is too small"):
        live(Config(), least_ratio=60).plan(b"ratio=50")


def test_a_text_without_keys_is_a_change_of_nothing():
    assert live(Config()).plan(b"# nothing\n").values == {}


def test_a_file_keeps_its_comments_and_other_keys_when_values_are_set():
    before = b"# mine\nthreads=9876\n\nratio = true\nratio=true\n"
    after = edit_properties(before, {"ratio": "false", "pauseMs": "3"})
    assert after == (b"# mine\nthreads=9876\n\nratio=false\npauseMs=3\n")


@settings(max_examples=60)
@given(
    before=st.dictionaries(st.sampled_from(KEYS), st.sampled_from(["1", "true"])),
    values=st.dictionaries(st.sampled_from(KEYS), st.sampled_from(["2", "false"])),
)
def test_an_edited_file_reads_as_the_old_values_with_the_new_ones(before, values):
    content = "".join(f"{key} : {value}\n" for key, value in before.items()).encode()
    edited = edit_properties(content, values)
    entries = {entry.key: entry.value for entry in parse_properties(edited.decode("latin-1"))}
    assert entries == {**before, **values}
    assert edit_properties(edited, values) == edited


@pytest.mark.slow
@settings(max_examples=200)
@given(
    content=st.text(alphabet="ratio=\\\n\r#! x\x0c\x85", max_size=30).map(
        lambda text: text.encode("latin-1")
    )
)
def test_any_file_that_can_be_read_keeps_its_other_keys_when_it_is_edited(content):
    def values(file: bytes) -> dict[str, str]:
        return {entry.key: entry.value for entry in parse_properties(file.decode("latin-1"))}

    try:
        before = values(content)
    except ConfigError:
        return
    assert values(edit_properties(content, {"ratio": "9"})) == {**before, "ratio": "9"}


def test_a_value_on_several_lines_is_replaced_as_a_whole():
    before = b"ratio=1,\\\n  2,\\\n  3\nthreads=1\n"
    assert edit_properties(before, {"ratio": "9"}) == b"ratio=9\nthreads=1\n"


def test_a_line_that_cannot_be_read_is_kept():
    assert edit_properties(b"a=\\u12\n", {"ratio": "true"}) == (b"a=\\u12\nratio=true\n")
