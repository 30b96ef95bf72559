"""What people search for leads to the page that answers it."""

from __future__ import annotations

import re

import pytest
import yaml

from tests.docs.pages import PAGES, ROOT

SERVICE = "tutorials/service.md"


def words(page: str) -> str:
    """The text of a page as a search sees it: small letters, one space, no marks of Markdown."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8").casefold()
    return " ".join(re.sub(r"[`*\[\]]", "", text).split())


@pytest.mark.parametrize(
    ("wanted", "page"),
    [
        ("graceful shutdown", SERVICE),
        ("idempotent consumer", SERVICE),
        ("deduplication", SERVICE),
        ("duplicate", SERVICE),
        ("environment variables", SERVICE),
        ("compose", SERVICE),
        ("dockerfile", SERVICE),
        ("systemd", SERVICE),
        ("kubernetes", SERVICE),
        ("sigterm", SERVICE),
        ("health check", SERVICE),
        ("liveness", SERVICE),
        ("readiness", SERVICE),
        ("back pressure", SERVICE),
        ("backpressure", SERVICE),
        ("rate limit", SERVICE),
        ("logging", SERVICE),
        ("fastapi", SERVICE),
        ("uvloop", SERVICE),
        ("dead letter", "tutorials/delay_and_retry.md"),
        ("dlq resend", "tutorials/delay_and_retry.md"),
        ("celery", "tutorials/frameworks.md"),
        ("faststream", "reference/seven_tasks.md"),
        ("aiokafka", "reference/seven_tasks.md"),
    ],
)
def test_a_search_word_is_on_its_page(wanted: str, page: str) -> None:
    assert wanted in words(page)


HEADINGS = "Graceful shutdown,Idempotent consumers,Back pressure,environment variables,Logging"
FILES = "Health check,Dockerfile,Compose,systemd,Kubernetes"


@pytest.mark.parametrize("heading", [*HEADINGS.split(","), *FILES.split(",")])
def test_what_a_service_needs_has_a_heading(heading: str) -> None:
    text = (ROOT / "docs" / SERVICE).read_text(encoding="utf-8")
    assert re.search(rf"^##+ .*{heading}", text, re.MULTILINE)


def test_the_page_of_services_is_linked_from_the_first_pages() -> None:
    for page in ("README.md", "docs/index.md", "docs/tutorials/frameworks.md"):
        assert "service.md" in (ROOT / page).read_text(encoding="utf-8"), page
    assert SERVICE in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")


def test_the_home_page_begins_with_a_program() -> None:
    home = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    assert home.index("```python") < home.index("![") < home.index("\n| kind |")


def test_the_page_of_performance_begins_with_the_results() -> None:
    text = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    assert re.findall(r"^###? (.*)", text, re.MULTILINE)[:2] == ["Results", "What repeats"]


def test_no_page_cancels_what_it_could_stop() -> None:
    for page in PAGES:
        assert "task.cancel()" not in page.read_text(encoding="utf-8"), page


def blocks_of(language: str) -> list[str]:
    text = (ROOT / "docs" / SERVICE).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def test_the_files_for_containers_fit_the_limits_of_the_client() -> None:
    compose, deployment, probes = map(yaml.safe_load, blocks_of("yaml"))
    service = compose["services"]["billing"]
    assert service["environment"]["ROCKETMQ_URL"] == "rocketmq://mq:9876"
    assert service["stop_grace_period"] == "30s"
    assert compose["services"].keys() == {"mq", "billing"}
    pod = deployment["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] == 30
    assert deployment["spec"]["selector"]["matchLabels"] == {"app": "billing"}
    assert probes.keys() == {"readinessProbe", "livenessProbe"}
    (unit,) = blocks_of("ini")
    assert "TimeoutStopSec=30" in unit.splitlines()
