"""A second try of a test gets new fixtures."""

from __future__ import annotations

import pytest

from . import second_try

pytest_plugins = ["pytester"]

TESTS = """
    import pytest

    made = {"session": 0, "module": 0, "ended": 0}


    @pytest.fixture(scope="session")
    def session():
        made["session"] += 1


    @pytest.fixture(scope="module")
    def module(session):
        made["module"] += 1
        yield []
        made["ended"] += 1


    def test_before(module):
        module.append("before")


    def test_that_fails_once(module):
        module.append("a message")
        assert made["module"] == 2, module
        assert module == ["a message"]


    def test_after(module):
        assert module == ["a message"]
        assert made == {"session": 1, "module": 2, "ended": 1}
"""


class Plugin:
    def pytest_configure(self, config: pytest.Config) -> None:
        second_try.register(config)


@pytest.mark.parametrize("reruns", [0, 1])
def test_a_second_try_has_a_new_fixture_of_the_module(
    pytester: pytest.Pytester, reruns: int
) -> None:
    pytester.makepyfile(test_something=TESTS)
    arguments = [
        "-p",
        "no:randomly",
        "-p",
        "no:asyncio",
        f"--reruns={reruns}",
        "-rR",
        "--rerun-show-tracebacks",
    ]
    result = pytester.runpytest_inprocess(*arguments, plugins=[Plugin()])
    # What this process has imported already is a warning.
    counts = {kind: n for kind, n in result.parseoutcomes().items() if not kind.startswith("warn")}
    if reruns:
        assert counts == {"passed": 3, "rerun": 1}
        result.stdout.fnmatch_lines(["*['before', 'a message']*"])
    else:
        assert counts == {"passed": 1, "failed": 2}
