"""Credentials come from a file, and no text shows them."""

from __future__ import annotations

import pytest

from trocket.spark.cluster import read_secrets
from trocket.spark.errors import OptionError
from trocket.spark.source_options import source_options


@pytest.mark.parametrize(
    "text",
    [
        "accessKey: rocketmq2\nsecretKey: 12345678\n",
        "# of a job\n accessKey = rocketmq2\nother: x\nsecretKey='12345678'",
    ],
)
def test_a_file_of_the_tools_and_one_of_properties_are_read(text, tmp_path) -> None:
    path = tmp_path / "tools.yml"
    path.write_text(text)
    found = read_secrets(str(path))
    assert (found.access_key, found.secret_key) == ("rocketmq2", "12345678")
    path.write_text(text + "\nsecurityToken: t")
    assert read_secrets(str(path)).security_token == "t"


def test_a_file_without_a_key_is_refused_and_not_shown(tmp_path) -> None:
    path = tmp_path / "tools.yml"
    path.write_text("secretKey: 12345678")
    with pytest.raises(OptionError, match="has no line `accessKey: ") as error:
        read_secrets(str(path))
    assert "12345678" not in str(error.value)
    with pytest.raises(OptionError, match="cannot be read on this machine: No such file"):
        read_secrets(f"{path}x")


def test_keys_are_said_once() -> None:
    given = {"nameServer": "n:1", "topic": "T", "accessKey": "a", "secretKey": "b"}
    with pytest.raises(OptionError, match="accessKey or secretsFile"):
        source_options({**given, "secretsFile": "f"})
