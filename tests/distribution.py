"""Distribution of the tests over the processes of pytest-xdist: units of work, longest first.

A unit runs in one process. Most units are one test. Tests that share what takes seconds to start
are one unit: an interop module (its brokers and programs), a folder of Spark tests (its JVM), the
module of broker processes beside peers that misbehave, a module of the console's pages (its
Chromium), the modules that build and install the distributions, the one that builds the site. Two
processes begin with the longest units, and a third one with the single quick tests.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

FOLDERS = ("tests/interop/spark/", "tests/spark/")
"""Folders that are one unit each: every process that runs a test of one starts Spark."""
MODULES = (
    "tests/interop/",
    "tests/broker/peers/test_processes.py",
    "tests/console/browser/",
    "tests/docs/test_site.py",
    "tests/packaging/",
)
"""The modules that are one unit each, by the beginning of their paths."""

LONGEST = (
    "tests/spark",
    "tests/interop/test_mqadmin.py",
    "tests/console/browser/test_views.py",
    "tests/interop/test_grpc_jobs.py",
    "tests/interop/test_pops_passed_to_and_fro.py",
    "tests/interop/test_stopped_store_of_apache.py",
    "tests/interop/test_controller.py",
    "tests/interop/test_grpc_tutorials.py",
    "tests/console/browser/test_clusters.py",
    "tests/interop/test_examples.py",
    "tests/interop/scenarios/test_scenarios.py",
    "tests/interop/spark",
    "tests/interop/test_stores_change_hands.py",
    "tests/interop/test_controllers_by_admin.py",
    "tests/interop/test_proxy_jobs.py",
    "tests/packaging/test_wheels.py",
    "tests/packaging/test_distribution.py",
    "tests/packaging/test_native.py",
)
"""Units of some 40 s and more, longest first. Only the time of `make test` depends on it."""

LONG_PROCESSES = 2
"""Processes that begin with the long units. Others begin with the quick tests at the end, which use
the processors while the long ones wait for JVMs: a third or more of their time."""


def unit_of(nodeid: str) -> str:
    """The unit of a test: a folder, a module, or the test itself."""
    for folder in FOLDERS:
        if nodeid.startswith(folder):
            return folder.rstrip("/")
    return nodeid.partition("::")[0] if nodeid.startswith(MODULES) else nodeid


def longest_first(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """The tests by the length of their units; among alike ones the order stays as it is."""

    def rank(item: pytest.Item) -> int:
        unit = unit_of(item.nodeid)
        if unit in LONGEST:
            return LONGEST.index(unit)
        if item.get_closest_marker("slow"):
            return len(LONGEST) + (not unit.startswith(MODULES))
        return len(LONGEST) + 2

    return sorted(items, key=rank)


class UnitScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """xdist's scheduler for scopes, with the units above as scopes.

    The marker `xdist_group` cannot say it: with `--dist loadgroup` it changes the ids of tests, and
    the groups with the most tests come first instead of the longest.
    """

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        if self.nodes.index(node) >= LONG_PROCESSES:  # the last unit becomes the next one
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)

    def mark_test_complete(
        self, node: WorkerController, item_index: int, duration: float = 0
    ) -> None:
        super().mark_test_complete(node, item_index, duration)
        # xdist goes through all units of a process at each result, the finished ones included.
        units = self.assigned_work[node]
        unit = unit_of(self.registered_collections[node][item_index])
        if all(units[unit].values()):
            del units[unit]
