"""The packages of the extra `console`."""

from __future__ import annotations

import importlib.util
from typing import Final

NOT_INSTALLED: Final = "the console needs more packages: pip install 'trocket[console]'"
_PACKAGES: Final = ("starlette", "uvicorn", "jinja2")


def is_installed() -> bool:
    """Whether `trocket console` can run."""
    return all(importlib.util.find_spec(each) for each in _PACKAGES)
