"""The site can be built, and nothing in it leads nowhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

pytestmark = pytest.mark.slow

NEEDED = ("mkdocs", "material", "mkdocstrings", "mkdocstrings_handlers")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    missing = [each for each in NEEDED if find_spec(each) is None]
    if missing:
        text = f"the site needs {', '.join(missing)}: pip install 'trocket[docs]'"
        if os.environ.get("CI") == "true":
            pytest.fail(text)
        pytest.skip(text)
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env=dict(os.environ, NO_MKDOCS_2_WARNING="1"),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return folder


def test_every_page_of_the_documents_is_in_it(site: Path) -> None:
    for page in sorted((ROOT / "docs").rglob("*.md")):
        path = page.relative_to(ROOT / "docs").with_suffix("")
        folder = path.parent if path.name in ("index", "README") else path
        assert (site / folder / "index.html").is_file(), path


def test_every_public_name_of_the_client_has_its_place(site: Path) -> None:
    import trocket
    import trocket.blocking

    shown = "".join(
        (site / "reference" / page / "index.html").read_text(encoding="utf-8")
        for page in ("client", "messages", "admin", "errors", "blocking")
    )
    places = set(re.findall(r'id="(?:[\w.]+\.)?(\w+)"', shown))
    wanted = {each for each in trocket.client.__all__ if not each.startswith("_")}
    assert wanted - places == set()
    assert set(trocket.blocking.__all__) - places == set()


def test_no_docstring_is_shown_raw(site: Path) -> None:
    for page in sorted((site / "reference").rglob("index.html")):
        text = re.sub(r"<[^>]+>", "", page.read_text(encoding="utf-8"))
        raw = re.findall(r"^\s*(?:Args|Keys|Raises|Yields): *\S.*|.*\S::$", text, re.MULTILINE)
        assert raw == [], page


def test_a_forwarded_verb_is_shown_as_the_method_that_it_is(site: Path) -> None:
    page = (site / "reference/blocking/index.html").read_text(encoding="utf-8")
    poll = page[page.index('id="trocket.blocking.PullConsumer.poll"') :][:9000]
    assert "largest number of messages" in poll
    assert "seconds to wait for the first" in poll
    assert "forwarded" not in page
    page = (site / "reference/admin/index.html").read_text(encoding="utf-8")
    create = page[page.index('id="trocket.client.Admin.create_topic"') :][:12_000]
    assert "read_queues" in create
    assert "A name server knows it when this returns." in create
    assert "forwarded" not in page


def test_no_page_shows_an_escape(site: Path) -> None:
    """A `\\|` inside of a code span of a table is shown as it is, and gets copied."""
    for page in sorted(site.rglob("index.html")):
        shown = re.sub(r"<[^>]+>", "", page.read_text(encoding="utf-8"))
        assert "\\|" not in shown, page


def test_the_pages_of_the_api_have_what_programs_use_and_no_internals(site: Path) -> None:
    page = (site / "reference/client/index.html").read_text(encoding="utf-8")
    assert 'id="trocket.client.Producer.send"' in page
    assert 'id="trocket.client.PullConsumer.subscribe"' in page
    for internal in ("Producer.sender", "PushConsumer.next_message", "Client.start_soon"):
        assert f'id="trocket.client.{internal}"' not in page
    send = page[page.index('id="trocket.client.Producer.send"') :][:4000]
    assert "Never" not in send  # the type of arguments that are refused
