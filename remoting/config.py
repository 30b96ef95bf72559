"""Alias of common/config.py, for programs that catch `trocket.remoting.config.ConfigError`."""

from __future__ import annotations

from ..common.config import ConfigError

__all__ = ["ConfigError"]
