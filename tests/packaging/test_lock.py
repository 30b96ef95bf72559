"""deploy/requirements.txt, the pinned packages of servers and clients."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LOCK = (ROOT / "deploy" / "requirements.txt").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def locked_extras() -> list[str]:
    (line,) = re.findall(r"^LOCKED := (.+)$", MAKEFILE, re.MULTILINE)
    return str(line).split()


def locked() -> dict[str, Requirement]:
    """The packages of the lock by name."""
    lines = re.findall(r"^(\S+==[^\\\n]+?) *\\$", LOCK, re.MULTILINE)
    return {canonicalize_name(each.name): each for each in map(Requirement, lines)}


def wanted() -> list[Requirement]:
    """What the client and the locked extras need, extras of trocket itself resolved."""
    found = [Requirement(text) for text in PROJECT["dependencies"]]
    names = locked_extras()
    for extra in names:
        for each in map(Requirement, PROJECT["optional-dependencies"][extra]):
            if each.name == "trocket":
                names += [name for name in sorted(each.extras) if name not in names]
            else:
                found.append(each)
    return found


@pytest.mark.parametrize("requirement", wanted(), ids=str)
def test_the_lock_has_a_version_that_pyproject_allows(requirement: Requirement) -> None:
    pinned = locked().get(canonicalize_name(requirement.name))
    assert pinned is not None, "run: make lock"
    (version,) = [each.version for each in pinned.specifier]
    assert requirement.specifier.contains(version), "run: make lock"


def test_each_package_has_hashes() -> None:
    packages = re.split(r"\n(?=[a-z])", LOCK)
    assert len(packages) == len(locked()) + 1  # and the comment at the top
    for package in packages[1:]:
        assert "--hash=sha256:" in package, package.splitlines()[0]


def test_the_extras_of_servers_and_clients_are_locked() -> None:
    # Spark's belong to its clusters; the others are for work on trocket itself.
    left_out = {"spark", "test", "docs", "interop", "docker", "fuzz", "parquet", "broker"}
    left_out.add("kombu")  # the application's: its Celery says which
    left_out.add("faststream")  # the application's, too
    left_out.add("grpc-pure")  # the same as grpc, where that cannot be installed
    assert set(PROJECT["optional-dependencies"]) - left_out == set(locked_extras())
