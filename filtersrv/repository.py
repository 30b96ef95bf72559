"""The repository of filter classes: sources below a URL, or in a folder.

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
"""As 4.2.0."""
_SUFFIXES: Final = {FilterLanguage.JAVA: ".java", FilterLanguage.PYTHON: ".py"}


class RepositoryError(Exception):
    """A source is not there, is too large, or the repository cannot be reached."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        """Sources come from where the operator said."""


class Repository:
    """Sources by class name.

    Args:
      url: http, https, or file; CLASSNAME.java or CLASSNAME.py is added.
      languages: those that are looked for, in this order.
      size_max: bytes of a source.
    Raises: ConfigError: another kind of URL.
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
        """The source of a class, and its language.

        Args:
          class_name: checked.
        Raises: RepositoryError.
        """
        if not self._url:
            raise RepositoryError("there is no repository (filterClassRepertoryUrl)")
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
