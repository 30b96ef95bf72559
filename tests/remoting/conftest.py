"""Certificates for the tests of TLS."""

from __future__ import annotations

from pathlib import Path

import pytest

from .tls_support import Certificates


@pytest.fixture
def files(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)
