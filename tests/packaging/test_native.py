"""Installations from source: with a C compiler they have the extension, without one they run."""

from __future__ import annotations

import re
import shutil
import site
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from collections.abc import Mapping
from fnmatch import fnmatch
from itertools import product
from pathlib import Path
from typing import Final

import pytest

from tests.native.compiler import missing_to_build
from tests.packaging.environments import (
    ROOT,
    Environment,
    make_environment,
    run,
    this_python,
)

pytestmark = pytest.mark.slow

DESCRIBE: Final = "from trocket import native; print(native.choice.description)"
WITH: Final = "the C extension"
WITHOUT: Final = (
    "pure Python (the extension was not built: that needs a C compiler and Python's headers)"
)
NO_COMPILER: Final = {"CC": "/nonexistent/cc", "CXX": "/nonexistent/c++"}
JUNK: Final = (".*", "__pycache__", "*.egg-info", "build", "dist", "target", "*.so")

START: Final = """
import logging, sys
logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
from trocket.testing import Broker
with Broker():
    pass
"""
"""A broker that starts and stops; its log is printed."""

needs_compiler = pytest.mark.skipif(bool(missing_to_build()), reason=missing_to_build())


@pytest.fixture(scope="module")
def source(folder: Path) -> Path:
    """A copy of the tree: building writes into it, and other tests read the tree."""
    return Path(shutil.copytree(ROOT, folder / "source", ignore=shutil.ignore_patterns(*JUNK)))


@pytest.fixture(scope="module")
def sdist(source: Path, folder: Path) -> Path:
    out = folder / "sdist"
    run(
        sys.executable, "-m", "build", "--sdist", "--outdir", out, source, folder=folder, index=True
    )
    (built,) = out.glob("*.tar.gz")
    return built


@pytest.fixture(scope="module")
def fresh(folder: Path) -> Environment:
    """An environment with nothing but the packages that the tests run with, for brokers."""
    environment = make_environment(this_python(), folder / "fresh")
    (packages,) = environment.folder.glob("lib/python*/site-packages")
    known = [path for path in sys.path if Path(path).name == "site-packages"]
    # Folders named in a .pth file have no .pth files themselves: the tree is not found by this.
    lines = "\n".join(dict.fromkeys([*site.getsitepackages(), *known]))
    (packages / "of_the_tests.pth").write_text(lines, encoding="utf-8")
    return environment


def wheel(what: Path, out: Path, environment: Mapping[str, str]) -> Path:
    """Build a wheel as pip does when it installs from source."""
    words = ("-m", "pip", "--disable-pip-version-check", "wheel", "--no-deps", "--wheel-dir", out)
    run(sys.executable, *words, what, folder=out.parent, index=True, environment=environment)
    (built,) = out.glob("*.whl")
    return built


def described(environment: Environment, **variables: str) -> str:
    done = environment.run(environment.python, "-c", DESCRIBE, environment=variables)
    assert (done.stderr, done.returncode) == ("", 0)
    return done.stdout.strip()


def start_up(environment: Environment, **variables: str) -> str:
    """What a broker logs as it starts."""
    done = environment.run(environment.python, "-c", START, environment=variables)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    (line,) = [each for each in lines if each.startswith("the broker ") and " listens on " in each]
    return line


def test_the_sdist_has_all_that_the_extension_is_built_from(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    sources = {
        path.relative_to(ROOT).as_posix()
        for pattern in ("*.c", "*.h", "sources.py")
        for path in (ROOT / "native").glob(pattern)
    }
    assert len(sources) >= 5
    assert sources | {"setup.py", "pyproject.toml"} <= names
    assert not any(name.endswith((".so", ".o")) for name in names)


@needs_compiler
def test_with_a_compiler_an_sdist_is_installed_with_the_extension(
    sdist: Path, fresh: Environment, folder: Path
) -> None:
    built = wheel(sdist, folder / "with", {})
    assert f"-cp3{sys.version_info.minor}-" in built.name
    with zipfile.ZipFile(built) as archive:
        suffix = sysconfig.get_config_var("EXT_SUFFIX")
        assert f"trocket/native/_native{suffix}" in archive.namelist()
    fresh.install("--no-deps", "--force-reinstall", str(built))
    assert described(fresh) == WITH
    assert described(fresh, TROCKET_PURE="1") == "pure Python (TROCKET_PURE is set)"
    assert start_up(fresh).endswith(f", in {WITH}")
    assert start_up(fresh, TROCKET_PURE="1").endswith(", in pure Python (TROCKET_PURE is set)")


def test_without_a_compiler_an_sdist_is_installed_and_the_broker_says_why_it_is_pure(
    sdist: Path, fresh: Environment, folder: Path
) -> None:
    built = wheel(sdist, folder / "without", NO_COMPILER)
    assert built.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(built) as archive:
        assert not any(name.endswith(".so") for name in archive.namelist())
    fresh.install("--no-deps", "--force-reinstall", str(built))
    assert described(fresh) == WITHOUT
    assert start_up(fresh).endswith(f", in {WITHOUT}")


@pytest.mark.matrix
@needs_compiler
def test_an_editable_installation_notices_changed_sources(source: Path, fresh: Environment) -> None:
    fresh.install("--no-deps", "--force-reinstall", "--editable", str(source))
    try:
        assert described(fresh) == WITH
        with (source / "native" / "bytes.h").open("a", encoding="utf-8") as header:
            header.write("/* changed */\n")
        assert "built from other sources" in described(fresh)
        assert "built from other sources" in start_up(fresh)
        fresh.install("--no-deps", "--force-reinstall", "--editable", str(source))
        assert described(fresh) == WITH
    finally:
        run(fresh.python, "-m", "pip", "uninstall", "--yes", "trocket", folder=fresh.folder)


def test_there_is_a_wheel_for_each_python_that_the_package_is_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    named = re.findall(r"Python :: 3\.(\d+)", "\n".join(project["project"]["classifiers"]))
    assert project["tool"]["cibuildwheel"]["build"] == [f"cp3{minor}-*" for minor in named]


def test_linux_has_wheels_with_glibc_and_musl_for_both_processors() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    declared = project["tool"]["cibuildwheel"]
    assert declared["linux"]["archs"] == ["x86_64", "aarch64"]
    for libc, processor in product(("manylinux", "musllinux"), declared["linux"]["archs"]):
        name = f"cp311-{libc}_{processor}"
        assert [each for each in declared["skip"] if fnmatch(name, each)] == [], name
