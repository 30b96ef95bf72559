"""Profiles, and completion of names that a cluster has."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from trocket.blocking import Message, Producer
from trocket.cli.main import main
from trocket.testing import Broker

from .conftest import are_completed, completions

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of profiles."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("ROCKETMQ_URL", raising=False)
    return tmp_path / "trocket" / "profiles.json"


@pytest.fixture(scope="module")
def broker(broker: Broker) -> Broker:
    with Producer(broker.url) as producer:
        producer.send(Message("Orders", "one"))
    return broker


@pytest.mark.slow
def test_a_profile_is_used_by_name_and_by_default(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    other = "rocketmq://127.0.0.1:1"
    assert main(["profile", "add", "test", broker.url, "--use"]) == 0
    assert main(["profile", "add", "prod", other]) == 0
    assert main(["topic", "list"]) == 0
    assert capsys.readouterr().out == "Orders\n"
    assert main(["topic", "list", "--url", "prod"]) != 0  # nothing listens there
    monkeypatch.setenv("TROCKET_PROFILE", "prod")
    assert main(["topic", "list"]) != 0
    # What is nearer wins.
    assert main(["topic", "list", "--url", "test"]) == 0
    monkeypatch.setenv("ROCKETMQ_URL", "test")
    assert main(["topic", "list"]) == 0


def test_the_file_is_the_user_s_alone_and_secrets_are_not_listed(
    config: Path, capsys: Capture
) -> None:
    url = "rocketmq://key:very-secret@10.0.0.7:9876"
    assert main(["profile", "add", "prod", url]) == 0
    assert stat.S_IMODE(config.stat().st_mode) == 0o600
    assert main(["profile", "list"]) == 0
    assert capsys.readouterr().out == "prod\trocketmq://***@10.0.0.7:9876\t\n"
    assert main(["profile", "use", "prod"]) == 0
    assert main(["profile", "list", "--json"]) == 0
    out = capsys.readouterr().out
    assert '"current":true' in out
    assert "very-secret" not in out
    assert main(["profile", "remove", "prod"]) == 0
    assert main(["profile", "list", "--json"]) == 0
    assert capsys.readouterr().out == "[]\n"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["profile", "add", "a:b", "127.0.0.1:9876"], "'a:b' is not a name"),
        (["profile", "add", "prod", "http://x"], "rocketmq://"),
        (["profile", "use", "prod"], "there is no profile 'prod'; there are: none"),
        (["profile", "remove", "prod"], "there is no profile 'prod'"),
        (["topic", "list", "--url", "prod"], "there is no profile 'prod'"),
    ],
)
def test_wrong_use_is_one_line_and_status_2(words: list[str], reason: str, capsys: Capture) -> None:
    assert main(words) == 2
    error = capsys.readouterr().err
    assert reason in error
    assert error.count("\n") == 1


def test_a_file_that_is_no_file_of_profiles_is_named(config: Path, capsys: Capture) -> None:
    config.parent.mkdir()
    config.write_text("[]")
    assert main(["profile", "list"]) == 1
    assert f"{config} cannot be read" in capsys.readouterr().err


@pytest.mark.slow
def test_topics_groups_and_profiles_are_completed(broker: Broker) -> None:
    with_url = {**os.environ, "ROCKETMQ_URL": broker.url}
    assert are_completed(["Orders"], "consume", "Or", environment=with_url)
    assert completions("topic", "show", "X", environment=with_url) == []
    assert completions("lag", "no", environment={**os.environ, "ROCKETMQ_URL": "127.0.0.1:1"}) == []
    assert main(["profile", "add", "prod", "127.0.0.1:1"]) == 0
    assert completions("profile", "use", "p") == ["prod"]
    assert completions("topic", "list", "--url", "p") == ["prod"]
