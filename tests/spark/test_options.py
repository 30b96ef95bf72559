"""Parsing of options: typed values, or an error that says what to write."""

from __future__ import annotations

import copy
import enum
from dataclasses import dataclass, field

import pytest

from trocket.spark.errors import OptionError
from trocket.spark.options import (
    DurationMs,
    Secret,
    SizeBytes,
    TimeMs,
    key_of,
    names,
    read_options,
)


class Mode(enum.Enum):
    FAILFAST = "failfast"
    PERMISSIVE = "permissive"


@dataclass(frozen=True)
class Sample:
    name_server: str = field(metadata={"meaning": "host:port"})
    pull_batch_size: int = field(default=1024, metadata={"minimum": 1})
    max_trigger_delay: DurationMs = field(default=DurationMs(900_000))
    pull_bytes: SizeBytes = field(default=SizeBytes(4 << 20))
    starting_timestamp: TimeMs | None = None
    fail_on_data_loss: bool = True
    mode: Mode = Mode.FAILFAST
    secret_key: Secret | None = None


def read(**given: str) -> Sample:
    return read_options(Sample, {"nameServer": "a:1", **given}, "the test")


def test_keys_are_read_in_any_case_and_values_get_their_types() -> None:
    found = read_options(
        Sample,
        {
            "nameserver": " a:9876 ",
            "PULLBATCHSIZE": "7",
            "maxTriggerDelay": "2m",
            "pullBytes": "64k",
            "startingTimestamp": "2026-11-22T10:00:00Z",
            "failOnDataLoss": "FALSE",
            "mode": "Permissive",
            "__partition_columns": "[]",
        },
        "the test",
    )
    assert found == Sample(
        "a:9876", 7, DurationMs(120_000), SizeBytes(65536), TimeMs(1_795_341_600_000), False,
        Mode.PERMISSIVE,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"pullBatchSiez": "3"}, "no option 'pullBatchSiez'; did you mean pullBatchSize"),
        ({"pullBatchSize": "many"}, "pullBatchSize must be a whole number, not 'many'"),
        ({"pullBatchSize": "0"}, "pullBatchSize must be at least 1, not 0"),
        ({"maxTriggerDelay": "2 weeks"}, "maxTriggerDelay must be a time such as"),
        ({"pullBytes": "4t"}, "pullBytes must be a number of bytes"),
        ({"startingTimestamp": "yesterday"}, "must be ms since 1970 or ISO 8601"),
        ({"startingTimestamp": "9223372036854775807"}, "must be ms since 1970 or ISO 8601"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss must be true or false"),
        ({"mode": "lax"}, "mode must be one of failfast, permissive, not 'lax'"),
    ],
)
def test_what_cannot_be_right_is_refused_with_what_to_write(given, text) -> None:
    with pytest.raises(OptionError) as caught:
        read(**given)
    assert text in str(caught.value)


def test_a_missing_option_is_named_with_its_meaning() -> None:
    with pytest.raises(OptionError, match="needs the option nameServer: host:port"):
        read_options(Sample, {}, "the test")


def test_a_secret_is_never_shown() -> None:
    options = read(secretKey="swordfish")
    again = copy.deepcopy(options)  # by the same way as Spark sends it to workers
    for shown in (repr(options), repr(again), f"{again.secret_key}", str(again.secret_key)):
        assert "swordfish" not in shown
    assert again.secret_key.reveal() == "swordfish"


def test_names_of_fields_and_lists() -> None:
    assert key_of("max_offsets_per_trigger") == "maxOffsetsPerTrigger"
    assert names(" a, b,,c ") == ("a", "b", "c")
