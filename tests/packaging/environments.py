"""The distributions, built from a copy of the tree, and empty environments to install them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent

NO_INDEX = re.compile(
    r"NewConnectionError|NameResolutionError|ProxyError|ConnectTimeoutError|ReadTimeoutError"
    r"|Temporary failure in name resolution|Could not resolve host"
)
"""What pip says where there is no network."""

OF_THE_TESTS = {"PYTHONPATH", "TROCKET_PURE"}
"""Variables that are for the process of the tests alone."""

BROUGHT_ALONG = {"pip", "setuptools", "wheel"}
"""Packages that `venv` puts into an empty environment."""


def run(
    *arguments: str | Path,
    folder: Path,
    index: bool = False,
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a program; with `index` it must end well, and may need the network.

    Args:
      environment: variables that it has besides those of the tests.
    """
    done = subprocess.run(
        [str(each) for each in arguments],
        cwd=folder,
        # The tree is not to be found: what is installed is tried. Compiled without optimizing, in a
        # fraction of the time.
        env={key: value for key, value in os.environ.items() if key not in OF_THE_TESTS}
        | {"CFLAGS": "-O0"}
        | dict(environment or {}),
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    said = done.stdout + done.stderr
    if index and done.returncode and NO_INDEX.search(said) and os.environ.get("CI") != "true":
        pytest.skip("no package index can be reached")
    assert not index or done.returncode == 0, said
    return done


@dataclass
class Built:
    """A wheel and an sdist, and the tree that they were built from."""

    source: Path
    wheel: Path
    sdist: Path


def build(folder: Path) -> Built:
    """The wheel and the sdist; the wheel is built from the sdist, so the sdist is whole.

    The wheel is the one in pure Python, which all systems install that have none of their own.
    """
    source = folder / "source"
    # A copy: building writes into the tree, which other tests read.
    junk = shutil.ignore_patterns(
        ".*", "__pycache__", "*.egg-info", "build", "dist", "target", "*.so"
    )
    shutil.copytree(ROOT, source, ignore=junk)
    out = folder / "dist"
    command = (sys.executable, "-m", "build", "--outdir", out, source)
    run(*command, folder=folder, index=True, environment={"TROCKET_PURE": "1"})
    (wheel,) = out.glob("*.whl")
    (sdist,) = out.glob("*.tar.gz")
    return Built(source, wheel, sdist)


@dataclass
class Environment:
    """A virtual environment in `folder`.

    Attributes:
      pip: the command that installs into it.
    """

    folder: Path
    pip: tuple[str | Path, ...]

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def trocket(self) -> Path:
        return self.folder / "bin" / "trocket"

    def install(self, *arguments: str) -> None:
        options = ("--disable-pip-version-check", "--retries", "1")
        install = ("install", "--quiet", "--no-compile", *arguments)
        run(*self.pip, *options, *install, folder=self.folder, index=True)

    def packages(self) -> set[str]:
        # What `pip list` says, without pip's own start.
        names = "[each.metadata['Name'] for each in metadata.distributions()]"
        code = f"import json; from importlib import metadata; print(json.dumps({names}))"
        return set(json.loads(self.run(self.python, "-c", code).stdout)) - BROUGHT_ALONG

    def run(
        self, *arguments: str | Path, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return run(*arguments, folder=self.folder, environment=environment)


def make_environment(python: Path, folder: Path) -> Environment:
    """An empty environment of a Python.

    Installing pip takes seconds, and ours serves our Python, too; it may be too old for newer ones.
    """
    is_ours = python == this_python()
    options = ("--without-pip",) if is_ours else ()
    done = run(python, "-m", "venv", *options, folder, folder=folder.parent)
    assert done.returncode == 0, done.stdout + done.stderr
    inside = folder / "bin" / "python"
    ours = (sys.executable, "-m", "pip", "--python", inside)
    return Environment(folder, ours if is_ours else (inside, "-m", "pip"))


def this_python() -> Path:
    """The Python that runs the tests, without their environment."""
    return Path(getattr(sys, "_base_executable", sys.executable))


def newer_pythons() -> list[int]:
    """The minor versions that pyproject.toml names and that are newer than ours, newest first."""
    said = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = map(int, re.findall(r"Python :: 3\.(\d+)", "\n".join(said["classifiers"])))
    return sorted((minor for minor in named if minor > sys.version_info.minor), reverse=True)


def newest_python() -> Path | None:
    """The newest Python here among those that pyproject.toml names, if it is newer than ours."""
    return next(filter(None, map(python_of, newer_pythons())), None)


def python_of(minor: int) -> Path | None:
    """A Python 3 of a minor version that is here; None: there is none."""
    for found in _found(f"python3.{minor}"):
        # pyenv has programs of this name that only say that the version is not chosen; some
        # systems' Pythons cannot make environments.
        done = run(found, "-c", "import ensurepip, ssl", folder=ROOT)
        if done.returncode == 0:
            return found
    return None


def _found(name: str) -> Iterator[Path]:
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    folders = [*os.get_exec_path(), *sorted(map(str, pyenv.glob("versions/*/bin")), reverse=True)]
    for folder in folders:
        found = shutil.which(name, path=folder)
        if found is not None:
            yield Path(found)


def code_blocks(page: str, heading: str, language: str = "python") -> list[str]:
    """The fenced blocks of a Markdown page that stand under a heading, up to the next heading."""
    blocks: list[str] = []
    below = False
    fence: str | None = None
    lines: list[str] = []
    for line in page.splitlines():
        if fence is not None:
            if line.strip() == "```":
                if below and fence == language:
                    blocks.append("\n".join(lines) + "\n")
                fence = None
            else:
                lines.append(line)
        elif line.startswith("```"):
            fence, lines = line[3:].strip(), []
        elif line.startswith("#"):
            below = line.lstrip("#").strip() == heading
    return blocks
