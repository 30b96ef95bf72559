"""What a second try of a test needs (`--reruns`): fixtures that its first try has not used.

A module's broker still has the topics of the first try. pytest-rerunfailures keeps it, so a test
that sends to "T" and counts what is there would fail a second time for the first one's messages.
"""

from __future__ import annotations

from collections.abc import Generator

import pytest

FAILED = pytest.StashKey[bool]()
"""Of a test: a part of it failed in this try."""


def register(config: pytest.Config) -> None:
    """Add this module's hooks, if tests that fail are run again."""
    if config.getoption("reruns", None):
        config.pluginmanager.register(_Hooks(), "second-try")


class _Hooks:
    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        first = call.when == "setup"
        item.stash[FAILED] = report.failed or (not first and item.stash.get(FAILED, False))
        return report

    @pytest.hookimpl(tryfirst=True)  # before pytest-rerunfailures takes them away to keep them
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        """End the fixtures of the module, class and folder; those of the session stay."""
        if item.stash[FAILED]:
            # It asks a next item only for the nodes above it, of which a session is the first.
            item.session._setupstate.teardown_exact(item.session)  # type: ignore[arg-type]
