"""Findings of the doctor as the console shows them: in both languages, with a link to the cause."""

from __future__ import annotations

import string
from dataclasses import replace

import pytest

from trocket.console.charts import chart_of
from trocket.console.findings import findings_of
from trocket.console.pages.overview import Overview
from trocket.console.pages.table import PAGES
from trocket.console.rendering import Renderer
from trocket.console.texts import LANGUAGES, texts_of
from trocket.operations.doctor.facts import (
    BrokerFacts,
    BrokerKey,
    Facts,
    GroupFacts,
    MemberFacts,
    NameServerFacts,
    Subscription,
)
from trocket.operations.doctor.kinds import Kind, Word

MEMBER = MemberFacts("c@1", "JAVA", "V5_5_0", frozenset({Subscription("orders", "*", "TAG")}))
OTHER = replace(
    MEMBER, client_id="c@2", subscriptions=frozenset({Subscription("orders", "a", "TAG")})
)
BROKER = BrokerFacts(
    BrokerKey("broker-a", 0), "C", "10.0.0.1:10911", runtime={"commitLogDiskRatio": "0.86"}
)
FACTS = Facts(
    (NameServerFacts("10.0.0.9:9876"),),
    (replace(BROKER, groups=frozenset({"billing"})),),
    (GroupFacts("billing", (MEMBER, OTHER)), GroupFacts("lost", lag={"orders": 1_200})),
)


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_kind_has_its_sentences(language: str) -> None:
    keys = texts_of(language).keys
    wanted = {f"{part}.{kind.name}" for kind in Kind for part in ("finding", "advice")}
    wanted |= {f"finding_word.{word.name}" for word in Word}
    assert wanted == {
        key for key in keys if key.startswith(("finding.", "advice.", "finding_word."))
    }


def test_sentences_have_the_same_values() -> None:
    chinese = texts_of("zh")
    for kind in Kind:
        for part, english in zip(("finding", "advice"), kind.value, strict=True):
            assert fields(str(chinese(f"{part}.{kind.name}"))) == fields(english), kind


def fields(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


def test_a_finding_links_to_the_page_of_its_cause() -> None:
    found = {each.kind: (each.page, dict(each.query)) for each in findings_of(FACTS)}
    assert found == {
        "SUBSCRIPTIONS_DIFFER": ("group", {"group": "billing"}),
        "NO_CONSUMER": ("group", {"group": "lost"}),
        "DISK_CLEANS": ("broker", {"name": "broker-a"}),
    }
    assert {page for page, _ in found.values()} <= {page.name for page in PAGES}


@pytest.mark.parametrize(
    ("language", "sentence"),
    [
        ("en", "the group lost has no connected consumer, and 1,200 messages wait"),
        ("zh", "条消息堆积"),
    ],
)
def test_findings_are_said_in_the_readers_language(language: str, sentence: str) -> None:
    page = page_in(language)
    assert sentence in page
    assert '/group?group=lost"' in page
    for name in ("finding.", "advice."):
        assert name not in page


def page_in(language: str) -> str:
    charts = dict.fromkeys(("rates", "lag", "disk"), chart_of(()))
    page = Overview("", findings_of(FACTS), (), (), (), (), None, charts)
    renderer = Renderer("", {page.name for page in PAGES})
    return renderer.live_block("overview", texts_of(language), "overview", page=page, person=None)
