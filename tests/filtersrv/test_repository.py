"""Sources by class name, from a folder or over HTTP."""

from __future__ import annotations

import http.server
import threading

import pytest

from trocket.common.config import ConfigError
from trocket.filtersrv.repository import Repository, RepositoryError
from trocket.filtersrv.workers import FilterLanguage

JAVA, PYTHON = FilterLanguage.JAVA, FilterLanguage.PYTHON


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a.Keep.java").write_bytes(b"java")
    (tmp_path / "a.Both.java").write_bytes(b"java")
    (tmp_path / "a.Both.py").write_bytes(b"python")
    (tmp_path / "a.Large.java").write_bytes(b"x" * 101)
    return tmp_path


@pytest.fixture
def url(folder):
    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=str(folder))

        def do_GET(self):
            if self.path == "/a.Moved.java":
                self.send_response(302)
                self.send_header("Location", f"file://{folder}/a.Keep.java")
                self.end_headers()
            else:
                super().do_GET()

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("kind", ["file", "http"])
async def test_a_source_is_found_by_its_class_name(kind, folder, url):
    repository = Repository(
        folder.as_uri() if kind == "file" else url, [JAVA, PYTHON], size_max=100
    )
    assert await repository.fetch("a.Keep") == (JAVA, b"java")
    assert await repository.fetch("a.Both") == (JAVA, b"java")
    with pytest.raises(RepositoryError, match=r"a\.Nothing\.java.*a\.Nothing\.py"):
        await repository.fetch("a.Nothing")
    with pytest.raises(RepositoryError, match="more than 100 bytes"):
        await repository.fetch("a.Large")


async def test_only_languages_that_are_on_are_looked_for(folder):
    assert await Repository(folder.as_uri(), [PYTHON], size_max=100).fetch("a.Both") == (
        PYTHON,
        b"python",
    )
    with pytest.raises(RepositoryError, match="no language of filters is enabled"):
        await Repository(folder.as_uri(), [], size_max=100).fetch("a.Both")


async def test_a_repository_cannot_send_elsewhere(url):
    with pytest.raises(RepositoryError, match="302"):
        await Repository(url, [JAVA], size_max=100).fetch("a.Moved")


async def test_where_there_is_none_nothing_is_fetched():
    with pytest.raises(RepositoryError, match="there is no repository"):
        await Repository("", [JAVA], size_max=100).fetch("a.Keep")


@pytest.mark.parametrize("url", ["ftp://host/x", "/etc", "data:text/plain,x"])
def test_other_urls_are_refused(url):
    with pytest.raises(ConfigError, match="is not http, https or file"):
        Repository(url, [JAVA], size_max=100)
