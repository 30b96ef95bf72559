"""The fixtures, in a pytest session of their own."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points

import pytest

from trocket.testing import Broker

pytest_plugins = ["pytester"]

PLUGIN = "trocket.pytest_plugin"


@pytest.fixture
def run(pytester: pytest.Pytester):
    """Run pytest in the same process, with the plugin whether it is registered or not."""
    is_installed = any(point.value == PLUGIN for point in entry_points(group="pytest11"))
    arguments = ["-p", "no:randomly", *([] if is_installed else ["-p", PLUGIN])]

    def run(*more: str) -> pytest.RunResult:
        return pytester.runpytest_inprocess(*arguments, *more)

    return run


@pytest.mark.slow
def test_the_fixtures(pytester: pytest.Pytester, run) -> None:
    pytester.makepyfile(
        """
        import re
        seen = set()

        def test_one(rocketmq_broker, rocketmq_topic, rocketmq_group):
            assert rocketmq_broker.messages(rocketmq_topic) == []
            assert re.fullmatch(r"topic-test_one-[0-9a-f]{8}", rocketmq_topic)
            assert re.fullmatch(r"group-test_one-[0-9a-f]{8}", rocketmq_group)
            seen.add(rocketmq_topic)

        def test_two(rocketmq_broker, rocketmq_cluster, rocketmq_topic):
            assert rocketmq_topic not in seen
            assert rocketmq_cluster is rocketmq_broker
            topics = rocketmq_broker._running().broker.topics.topic_config_table
            assert rocketmq_topic in topics
            assert not seen & set(topics)   # it was deleted after its test
        """
    )
    run().assert_outcomes(passed=2)


@pytest.mark.slow
def test_names_are_allowed_whatever_the_tests_are_called(pytester: pytest.Pytester, run) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("what", ["ä b/c.d", "x" * 300, "%", ""])
        def test_it(rocketmq_topic, what):
            assert len(rocketmq_topic) < 100
        """
    )
    run().assert_outcomes(passed=4)


SHOWN = """
def test_it(rocketmq_broker, rocketmq_config):
    config = rocketmq_broker._running().broker.config
    assert config.default_topic_queue_nums == 3
    assert config.enable_property_filter
    assert dict(rocketmq_config)["defaultTopicQueueNums"] in ("3", 3)
"""


@pytest.mark.slow
def test_the_ini_option_has_keys_for_the_broker(pytester: pytest.Pytester, run) -> None:
    pytester.makeini(
        """
        [pytest]
        rocketmq_config =
            defaultTopicQueueNums = 3
            enablePropertyFilter=true
        """
    )
    pytester.makepyfile(SHOWN)
    run().assert_outcomes(passed=1)


@pytest.mark.slow
def test_a_fixture_has_keys_for_the_broker(pytester: pytest.Pytester, run) -> None:
    pytester.makeconftest(
        """
        import pytest

        @pytest.fixture(scope="session")
        def rocketmq_config():
            return {"defaultTopicQueueNums": 3, "enablePropertyFilter": True}
        """
    )
    pytester.makepyfile(SHOWN)
    run().assert_outcomes(passed=1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("defaultTopicQueueNum=3", "*the nearest key there is: defaultTopicQueueNums*"),
        ("defaultTopicQueueNums", "*rocketmq_config: 'defaultTopicQueueNums' is not key=value*"),
        ("defaultTopicQueueNums=three", "*defaultTopicQueueNums must be*"),
    ],
)
def test_a_wrong_key_is_named(pytester: pytest.Pytester, run, line: str, words: str) -> None:
    pytester.makeini(f"[pytest]\nrocketmq_config = {line}\n")
    pytester.makepyfile("def test_it(rocketmq_broker): pass")
    result = run()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([words])


@pytest.mark.slow
def test_a_cluster_elsewhere(pytester: pytest.Pytester, run) -> None:
    pytester.makepyfile(
        """
        def test_it(rocketmq_cluster, rocketmq_topic, request):
            url = request.config.getoption("--rocketmq")
            assert rocketmq_cluster.url == url
            assert "rocketmq://" + rocketmq_cluster.namesrv_address == url
            with open("topic", "w") as file:
                file.write(rocketmq_topic)
        """
    )
    with Broker() as broker:
        made: list[str] = []
        create = broker._running().broker.topics.on_change
        broker._running().broker.topics.on_change = lambda topics: (
            made.extend(topic.topic_name for topic in topics),
            create(topics),
        )
        run(f"--rocketmq={broker.url}").assert_outcomes(passed=1)
        topic = (pytester.path / "topic").read_text()
        assert topic in made
        assert topic not in broker._running().broker.topics.topic_config_table


@pytest.mark.slow
@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("no sense", "*--rocketmq: *write host:port*"),
        ("rocketmq://127.0.0.1:1", "*no name server answered*"),
    ],
)
def test_a_cluster_that_cannot_be_reached(
    pytester: pytest.Pytester, run, url: str, words: str
) -> None:
    pytester.makepyfile("def test_it(rocketmq_topic): pass")
    result = run(f"--rocketmq={url}")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([words])


@pytest.mark.slow
def test_the_plugin_imports_nothing_that_is_not_needed() -> None:
    program = (
        "import sys, trocket.pytest_plugin as plugin\n"
        "print(sorted({name.split('.')[0] for name in sys.modules} & {'trio', 'anyio', 'msgspec'}),"
        " sorted(name for name in sys.modules if name.startswith('trocket')))"
    )
    output = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60
    ).stdout
    assert output.strip() == "[] ['trocket', 'trocket.pytest_plugin']"
