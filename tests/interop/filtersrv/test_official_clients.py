"""Consumers with class filters get exactly what matches, with servers of ours and Apache's mixed.

The official Java clients 4.2.0 and 4.9.7 upload their class, and so does ours; 5.5.0 does not, so
somebody else has to.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest
import trio

from trocket import FilterClass

from . import sites
from .consumption import Consumption
from .java_consumers import JavaConsumers
from .material import (
    COUNT,
    FIFTHS_BY_EXPRESSION,
    KEEP_FIFTH,
    KEEP_FIFTH_IN_PYTHON,
    KEEP_FIFTH_SOURCE,
    QUEUE_COUNT,
    STEP,
    TOPIC,
    fifths,
    send_numbers,
)
from .our_consumer import consume
from .sites import OpenSite, Site

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("java")]

TIMEOUT_S = 120.0
COMMIT_TIMEOUT_S = 30.0

NOT_UPLOADING = "5.5.0"


@pytest.mark.parametrize(
    "made_by",
    [
        sites.kept_by_the_broker,
        pytest.param(sites.by_hand, marks=pytest.mark.matrix),
        pytest.param(sites.ours_at_apaches_broker, marks=pytest.mark.matrix),
        pytest.param(sites.apaches_at_our_broker, marks=pytest.mark.matrix),
        pytest.param(sites.apache_alone, marks=pytest.mark.matrix),
    ],
    ids=lambda made_by: made_by.__name__,
)
def test_uploaded_and_put_classes_let_exactly_the_matching_messages_pass(
    open_site: Callable[[OpenSite], Site],
    java_consumers: Mapping[str, JavaConsumers],
    made_by: OpenSite,
    tmp_path: Path,
) -> None:
    site = open_site(made_by)
    send_numbers(site.cluster.namesrv_address, site.cluster.broker_address)
    file = tmp_path / "KeepFifth.java"
    file.write_text(KEEP_FIFTH_SOURCE)
    name = made_by.__name__
    site.put(KEEP_FIFTH, file, group=f"{name}-{NOT_UPLOADING}".replace(".", "_"), topic=TOPIC)
    consume_all(site, java_consumers, {f"{name}-{version}": version for version in java_consumers})
    consume_with_ours(site, "ours", FilterClass(KEEP_FIFTH, KEEP_FIFTH_SOURCE))
    if site.runs_python:
        in_python = FilterClass(KEEP_FIFTH, KEEP_FIFTH_IN_PYTHON, language="python")
        consume_with_ours(site, "ours_in_python", in_python)


@pytest.mark.matrix
def test_classes_that_nobody_uploads_let_exactly_the_matching_messages_pass(
    open_site: Callable[[OpenSite], Site],
    java_consumers: Mapping[str, JavaConsumers],
    tmp_path: Path,
) -> None:
    (tmp_path / f"{KEEP_FIFTH}.java").write_text(KEEP_FIFTH_SOURCE)
    meanings = tmp_path / "classes.json"
    meanings.write_text(json.dumps({FIFTHS_BY_EXPRESSION: {"expression": "rest = 0"}}))
    keys = {
        "javaFilterEnable": True,
        "clientUploadFilterClassEnable": False,
        "filterClassRepertoryUrl": tmp_path.as_uri(),
        "filterClassesFile": meanings,
    }
    site = open_site(lambda folder: sites.by_hand(folder, keys))
    send_numbers(site.cluster.namesrv_address, site.cluster.broker_address)
    wanted = {f"repository-{version}": version for version in java_consumers}
    wanted |= {f"expression-{version}": version for version in java_consumers}
    consume_all(site, java_consumers, wanted)
    consume_with_ours(site, "ours", FilterClass(KEEP_FIFTH))
    consume_with_ours(site, "ours_by_expression", FilterClass(FIFTHS_BY_EXPRESSION))


def consume_all(
    site: Site, java_consumers: Mapping[str, JavaConsumers], wanted: Mapping[str, str]
) -> None:
    """Consumers by name, each of a version, get every fifth message and commit all of them."""
    started = dict(start_all(site, java_consumers, wanted))
    for by, (consumers, _) in started.items():
        consumers.wait_count(by, COUNT // STEP, timeout_s=TIMEOUT_S)
    for by, (consumers, seen) in started.items():
        consumers.stop(by)
        site.wait_committed(by, TOPIC, QUEUE_COUNT, timeout_s=COMMIT_TIMEOUT_S)
        print(f"{by}: {seen.figures()}")
        assert seen.distinct() == fifths(range(COUNT))


def start_all(
    site: Site, java_consumers: Mapping[str, JavaConsumers], wanted: Mapping[str, str]
) -> Iterator[tuple[str, tuple[JavaConsumers, Consumption]]]:
    for name, version in wanted.items():
        consumers, by = java_consumers[version], name.replace(".", "_")
        seen = consumers.start(
            by,
            namesrv_address=site.cluster.namesrv_address,
            topic=TOPIC,
            class_name=FIFTHS_BY_EXPRESSION if by.startswith("expression") else KEEP_FIFTH,
            source=KEEP_FIFTH_SOURCE,
        )
        yield by, (consumers, seen)


def consume_with_ours(site: Site, group: str, filter_class: FilterClass) -> None:
    """Our consumer gets every fifth message and commits all of them."""
    seen = trio.run(
        partial(
            consume,
            site.cluster.namesrv_address,
            group,
            filter_class,
            count=COUNT // STEP,
            timeout_s=TIMEOUT_S,
        )
    )
    print(f"{group}: {seen.figures()}")
    assert seen.distinct() == fifths(range(COUNT))
    assert site.committed(group, TOPIC, QUEUE_COUNT) == site.ends(TOPIC, QUEUE_COUNT)
