"""The texts of the pages in English and Chinese: two files with the same keys.

The English sentences of findings are those of `operations.doctor.kinds`.
"""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib import resources
from typing import Any, Final

from markupsafe import Markup, escape

from ...operations.doctor.kinds import Kind, Word

LANGUAGES: Final = ("en", "zh")
"""The first is for people whose browser asks for neither."""
HTML_LANGUAGES: Final = {"en": "en", "zh": "zh-CN"}


class Texts:
    """The texts of one language, by keys such as "overview.title"."""

    def __init__(self, language: str, texts: dict[str, str]) -> None:
        self.language = language
        self._texts = texts

    @property
    def keys(self) -> frozenset[str]:
        return frozenset(self._texts)

    def __call__(self, key: str, /, **values: object) -> Markup:
        """A text with its values in place; values are escaped, `Markup` stays as it is."""
        return escape(self._texts[key]).format(**values) if values else escape(self._texts[key])

    def names(self, key: str) -> frozenset[str]:
        """The values that a text needs."""
        return frozenset(re.findall(r"{(\w+)}", self._texts[key]))

    def under(self, prefix: str) -> dict[str, Markup]:
        """The texts whose keys begin with "prefix.", by the rest of the key."""
        start = f"{prefix}."
        return {
            key.removeprefix(start): escape(text)
            for key, text in self._texts.items()
            if key.startswith(start)
        }


@cache
def texts_of(language: str) -> Texts:
    """The texts of one of LANGUAGES."""
    file = resources.files(__package__) / f"{language}.toml"
    texts = dict(_flat("", tomllib.loads(file.read_text(encoding="utf-8"))))
    return Texts(language, {**_of_findings(), **texts} if language == "en" else texts)


def _of_findings() -> dict[str, str]:
    """The English sentences of findings, which `trocket doctor` has, too."""
    texts = {f"finding_word.{word.name}": word.value for word in Word}
    for kind in Kind:
        texts[f"finding.{kind.name}"] = kind.value.text
        texts[f"advice.{kind.name}"] = kind.value.advice
    return texts


def _flat(prefix: str, tree: dict[str, Any]) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for name, value in tree.items():
        if isinstance(value, dict):
            found += _flat(f"{prefix}{name}.", value)
        else:
            found.append((prefix + name, value))
    return found


def language_of(accepted: str) -> str:
    """The language for an Accept-Language header: the one of LANGUAGES with the greatest weight."""
    best, best_weight = LANGUAGES[0], 0.0
    for part in accepted.split(","):
        name, _, parameters = part.strip().partition(";")
        language = name.partition("-")[0].lower()
        weight = _weight(parameters)
        if language in LANGUAGES and weight > best_weight:
            best, best_weight = language, weight
    return best


def _weight(parameters: str) -> float:
    name, _, value = parameters.strip().partition("=")
    if name.strip() != "q":
        return 1.0
    try:
        weight = float(value)
    except ValueError:
        return 0.0
    return weight if 0 <= weight <= 1 else 0.0
