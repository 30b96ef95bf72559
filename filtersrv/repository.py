"""The repository of filter classes: source files below a URL, or in a folder.

Java counterpart: filtersrv/filter/HttpFilterClassFetchMethod.java of 4.2.0.
"""

from __future__ import annotations

import http.client
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Final

import trio

from ..common.config import ConfigError
from .workers import FilterLanguage

FETCH_TIMEOUT_S: Final = 5.0
"""Time limit of fetching a source; the same as in 4.2.0."""
_SUFFIXES: Final = {FilterLanguage.JAVA: ".java", FilterLanguage.PYTHON: ".py"}


class RepositoryError(Exception):
    """A source is missing or too large, or the repository cannot be reached."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        """Follow no redirects: sources must come from the configured URL."""


class Repository:
    """Fetches sources by class name.

    Args:
      url: http, https or file URL, to which CLASSNAME.java or CLASSNAME.py is appended; "": none.
      languages: languages of the sources, tried in this order.
      size_max: largest size of a source in bytes.

    Raises: ConfigError: the URL has another scheme.
    """

    def __init__(self, url: str, languages: list[FilterLanguage], *, size_max: int) -> None:
        parts = urllib.parse.urlsplit(url)
        if url and parts.scheme not in ("http", "https", "file"):
            raise ConfigError(f"filterClassRepertoryUrl: {url!r} is not http, https or file")
        self._url = url.rstrip("/")
        self._folder = (
            Path(urllib.request.url2pathname(parts.path)) if parts.scheme == "file" else None
        )
        self._languages = languages
        self._size_max = size_max
        self._opener = urllib.request.build_opener(_NoRedirects)

    async def fetch(self, class_name: str) -> tuple[FilterLanguage, bytes]:
        """Fetch the source of a class.

        Args:
          class_name: a valid class name.

        Returns: the language and the source.
        Raises: RepositoryError: it cannot be fetched.
        """
        if not self._url:
            raise RepositoryError("there is no repository: set filterClassRepertoryUrl")
        problems = []
        for language in self._languages:
            name = class_name + _SUFFIXES[language]
            try:
                source = await trio.to_thread.run_sync(self._read, name, abandon_on_cancel=True)
            except (OSError, http.client.HTTPException) as error:
                if isinstance(error, urllib.error.HTTPError):
                    error.close()  # it holds the connection
                problems.append(f"{name}: {error}")
                continue
            if len(source) > self._size_max:
                raise RepositoryError(f"{name} has more than {self._size_max} bytes")
            return language, source
        none = "no language of filters is enabled"
        raise RepositoryError(f"{self._url}: {'; '.join(problems) or none}")

    def _read(self, name: str) -> bytes:
        if self._folder is not None:
            with (self._folder / name).open("rb") as file:
                return file.read(self._size_max + 1)
        address = f"{self._url}/{urllib.parse.quote(name)}"
        with self._opener.open(address, timeout=FETCH_TIMEOUT_S) as answer:
            content: bytes = answer.read(self._size_max + 1)
            return content
