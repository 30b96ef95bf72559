"""Whole groups: nothing matches, or the group has two versions of its class."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

import pytest

from trocket.interop.wire import WireClient

from ...kit.waiting import wait_until
from . import sites
from .java_consumers import JavaConsumers
from .material import (
    KEEP_FIFTH,
    KEEP_FIFTH_SOURCE,
    KEEP_NONE,
    KEEP_NONE_SOURCE,
    QUEUE_COUNT,
    STEP,
    fifths,
    java_class,
    numbered,
    send_numbers,
)
from .sites import Site

pytestmark = [
    pytest.mark.interop,
    pytest.mark.slow,
    pytest.mark.usefixtures("java"),
    pytest.mark.parametrize(
        "shared_site",
        [sites.by_hand, pytest.param(sites.apache_alone, marks=pytest.mark.matrix)],
        ids=lambda made_by: made_by.__name__,
        indirect=True,
    ),
]

TIMEOUT_S = 60.0
INTERVAL_S = 1.0
VERSIONS = ("4.2.0", "4.9.7")
"""Those that upload."""

NONE_COUNT = 5_000

TWO_VERSIONS = "TwoVersions"
VERSION = "4.9.7"
SEVEN = 7
ALSO_SEVENTHS_SOURCE = java_class(KEEP_FIFTH, f"number % {STEP} == 0 || number % {SEVEN} == 0")
"""The same class in another version."""
IN_TURN_S = 3.0
CHUNK = 100


@pytest.mark.matrix
def test_a_group_for_which_nothing_matches_commits_to_the_end(
    shared_site: Site, java_consumers: Mapping[str, JavaConsumers]
) -> None:
    cluster, topic = shared_site.cluster, "Nothing"
    send_numbers(cluster.namesrv_address, cluster.broker_address, NONE_COUNT, topic=topic)
    began_s = time.monotonic()
    seen = {
        by: java_consumers[version].start(
            by,
            namesrv_address=cluster.namesrv_address,
            topic=topic,
            class_name=KEEP_NONE,
            source=KEEP_NONE_SOURCE,
            interval_s=INTERVAL_S,
        )
        for by, version in named("nothing", shared_site).items()
    }
    for by in seen:
        shared_site.wait_committed(by, topic, QUEUE_COUNT, timeout_s=TIMEOUT_S)
        print(f"{by}: {NONE_COUNT} that do not match in {time.monotonic() - began_s:.1f} s")
    for by, version in named("nothing", shared_site).items():
        java_consumers[version].stop(by)
        assert seen[by].distinct() == set()


def named(what: str, site: Site) -> dict[str, str]:
    """Consumers' ids for a test at a site, with their versions."""
    return {
        f"{what}-{site.cluster.label}-{version}".replace(".", "_"): version for version in VERSIONS
    }


class TwoVersions:
    """One group with two consumers, each with its version of the class.

    Args:
      site: where.
      consumers: the JVM of both.
    """

    def __init__(self, site: Site, consumers: JavaConsumers) -> None:
        self._site = site
        self._next = 0
        self.group = f"two_versions_{site.cluster.label}".replace(".", "_")
        cluster = site.cluster
        send_numbers(cluster.namesrv_address, cluster.broker_address, 0, topic=TWO_VERSIONS)
        self.seen = {
            f"{self.group}_{name}": consumers.start(
                f"{self.group}_{name}",
                namesrv_address=cluster.namesrv_address,
                topic=TWO_VERSIONS,
                class_name=KEEP_FIFTH,
                source=source,
                group=self.group,
                interval_s=INTERVAL_S,
            )
            for name, source in (("first", KEEP_FIFTH_SOURCE), ("second", ALSO_SEVENTHS_SOURCE))
        }

    def got(self) -> set[int]:
        """What the group got."""
        return set().union(*(each.distinct() for each in self.seen.values()))

    def send(self) -> range:
        """Send the next numbers, downwards: a consumer with their fifths has passed all."""
        numbers = range(self._next, self._next + CHUNK)
        self._next += CHUNK
        with WireClient(self._site.cluster.broker_address) as wire:
            wire.send_all(numbered(number, TWO_VERSIONS) for number in reversed(numbers))
        return numbers

    def wait_for(self, wanted: set[int]) -> None:
        """Wait until the group got these."""
        wait_until(lambda: wanted <= self.got(), timeout_s=TIMEOUT_S, what="all that match")


def test_of_two_versions_of_a_class_the_last_upload_wins_and_nothing_is_lost(
    shared_site: Site, java_consumers: Mapping[str, JavaConsumers]
) -> None:
    """Each consumer uploads its version every second, so each is in force for a while."""
    consumers = java_consumers[VERSION]
    group = TwoVersions(shared_site, consumers)
    began_s = time.monotonic()
    while time.monotonic() < began_s + IN_TURN_S or not sevenths(group.got()):
        assert time.monotonic() < began_s + TIMEOUT_S, "the second version was never in force"
        group.wait_for(fifths(group.send()))
    by_second = len(group.got() - fifths(group.got()))
    for by, seen in group.seen.items():
        print(f"{by}: {seen.figures()}; {by_second} of both by the second version")

    first, second = group.seen
    consumers.stop(first)
    wait_until(
        lambda: bool(sevenths(group.send()) & group.got()),
        timeout_s=TIMEOUT_S,
        what="the second version is in force",
    )
    numbers = group.send()
    group.wait_for(fifths(numbers) | sevenths(numbers))
    consumers.stop(second)
    got = group.got()
    assert got & set(numbers) == fifths(numbers) | sevenths(numbers)
    assert got <= fifths(got) | sevenths(got)


def sevenths(numbers: Iterable[int]) -> set[int]:
    """Those that the second version keeps alone."""
    return {number for number in numbers if number % SEVEN == 0 and number % STEP}
