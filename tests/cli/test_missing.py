"""Topics, groups and brokers that are not there: plain words, and the nearest name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from trocket.cli.names import nearest
from trocket.testing import Broker

from .conftest import Run


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(config={"autoCreateTopicEnable": False}) as running:
        running.create_topic("Orders", 1)
        running.create_group("billing")
        yield running


TOPIC = "there is no topic 'Oders'; did you mean 'Orders'?"
GROUP = "there is no group 'biling'; did you mean 'billing'?"
BROKER = "no broker is called 'broker-b'; there are: broker-a"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        *(
            (words, TOPIC)
            for words in (
                "send Oders x",
                "consume Oders",
                "consume Oders --follow --limit 1",
                "consume Oders --group g --idle 1",
                "message --topic Oders --key k",
                "message --topic Oders --since 1h",
                "message ABCD --topic Oders",
                "topic show Oders",
                "topic delete Oders --yes",
                "topic stats Oders",
                "topic groups Oders",
                "topic perm Oders R --yes",
                "topic units Oders broker-a:0",
                "topic order-conf Oders",
                "topic allocate Oders a",
                "topic static show Oders",
                "offset show Oders",
                "offset reset billing Oders --to end --yes",
                "offset times billing Oders",
                "offset correction billing Oders",
                "lag billing --topic Oders",
                "pop show billing Oders",
                "pop mode billing Oders",
                "filter list --topic Oders",
                "bench --topic Oders --count 1",
            )
        ),
        *(
            (words, GROUP)
            for words in (
                "offset reset biling Orders --to end --yes",
                "offset clone biling copy Orders --yes",
                "offset times biling Orders",
                "offset correction biling Orders",
                "lag biling",
                "group show biling",
                "group clients biling",
                "group topics biling",
                "group status biling",
                "group delete biling --yes",
                "dlq list biling",
                "dlq resend biling --yes",
                "pop show biling",
                "pop mode biling",
            )
        ),
        *(
            (words, BROKER)
            for words in (
                "topic units Orders broker-b:0",
                "broker info broker-b",
                "broker config broker-b",
                "broker stats broker-b",
                "broker ha broker-b",
                "broker counter broker-b TOPIC_PUT_NUMS Orders",
                "broker clean broker-b --expired-log --yes",
                "broker wipe-write-perm broker-b --yes",
            )
        ),
    ],
)
def test_a_name_that_is_not_there_is_said_in_plain_words(run: Run, words: str, text: str) -> None:
    ended = run(*words.split())
    assert (ended.status, ended.out, ended.err) == (1, "", f"trocket: {text}\n")
    with_json = run(*words.split(), "--json") if "bench" not in words else ended
    assert text in with_json.err
    for each in (ended, with_json):
        assert not re.search(r"http|ROUTEINFO|NOT_EXIST|\(17\)", each.err)


@pytest.mark.parametrize("words", ["topic show Zebra", "group show Zebra"])
def test_without_a_near_name_the_way_to_all_names_is_said(run: Run, words: str) -> None:
    kind = words.split()[0]
    way = f"`trocket {kind} list` lists them"
    assert run(*words.split()).err == f"trocket: there is no {kind} 'Zebra'; {way}\n"


@pytest.mark.parametrize("words", ["topic show broker-a", "group show TOOLS_CONSUMER"])
def test_names_of_rocketmq_itself_are_there(run: Run, words: str) -> None:
    assert run(*words.split()).status == 0


EMPTY = {
    "producers nosuch": "no producer of the group nosuch is connected",
    "group clients billing": "no consumer of the group billing is connected",
    "group clients billing --producers": "no producer of the group billing is connected",
    "group topics billing": "the group billing has no offsets in any topic",
    "topic groups Orders": "no group consumes the topic Orders",
    "topic list --url {url}?namespace=empty": "there is no topic; --all lists RocketMQ's own, too",
    "group list --url {url}?namespace=empty": "there is no group; --all lists RocketMQ's own, too",
    "lag --url {url}?namespace=empty": "there is no group; --all lists RocketMQ's own, too",
    "broker consume-stats broker-a": "no group has such a queue on the broker broker-a",
    "profile list": "there is no profile; add one: trocket profile add NAME URL",
}
"""What a command says for people whose list is empty."""


@pytest.mark.parametrize("words", EMPTY)
def test_an_empty_list_is_said_on_standard_error(
    run: Run, broker: Broker, words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    typed = words.format(url=broker.url).split()
    ended = run(*typed)
    assert (ended.status, ended.out, ended.err) == (0, "", f"trocket: {EMPTY[words]}\n")
    scripted = run(*typed, "--json")
    assert (scripted.status, scripted.err) == (0, "")
    assert scripted.json == [] or "consume-stats" in words


@pytest.mark.parametrize(
    ("name", "found"),
    [("Oders", "Orders"), ("orders", "Orders"), ("building-events", None), ("x", None)],
)
def test_only_a_near_name_is_offered(name: str, found: str | None) -> None:
    assert nearest(name, ["Orders", "billing", "X-Files"]) == found
