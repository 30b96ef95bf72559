"""The distributions: built, inspected, and installed into empty environments."""

from __future__ import annotations

import subprocess
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.kit.matrix import first_of
from tests.packaging.environments import (
    ROOT,
    Built,
    Environment,
    build,
    code_blocks,
    make_environment,
    newest_python,
    this_python,
)
from trocket import __version__

pytestmark = pytest.mark.slow

PACKAGES_MAX = 7
"""Packages that the client may bring, itself among them."""


BESIDE = ("pyspark_rocketmq/", "pyspark_rocketmq_store/")
"""Packages beside `trocket`, by whose names Spark finds its formats."""


@dataclass
class Installed:
    """An environment after `pip install trocket[cli]`, and what was so before the extra."""

    environment: Environment
    base: set[str]
    base_command: subprocess.CompletedProcess[str]
    base_client: subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def built(folder: Path) -> Built:
    return build(folder)


@pytest.fixture(scope="module")
def install(built: Built, folder: Path) -> Callable[[str], Installed]:
    """Installs the wheel once per Python."""
    done: dict[str, Installed] = {}

    def installed(which: str) -> Installed:
        if which not in done:
            python = this_python() if which == "this Python" else newest_python()
            if python is None:
                pytest.skip("no Python here is newer than the one that runs the tests")
            environment = make_environment(python, folder / which.replace(" ", "-"))
            environment.install("--only-binary=:all:", str(built.wheel))
            done[which] = Installed(
                environment,
                environment.packages(),
                environment.run(environment.trocket, "up"),
                environment.run(environment.python, "-c", "from trocket import *; Producer"),
            )
            environment.install(f"{built.wheel}[cli,interop]")
        return done[which]

    return installed


@pytest.fixture(params=first_of(["this Python", "the newest Python"]))  # an environment for each
def installed(request: pytest.FixtureRequest, install: Callable[[str], Installed]) -> Installed:
    return install(request.param)


def inside(source: Path, pattern: str) -> set[str]:
    """The files of the tree that are part of the package."""
    found = {path.relative_to(source) for path in source.rglob(pattern)}
    outside = {"tests", "testkits", "bench", "deploy", "docs", "examples", "setup.py"}
    return {path.as_posix() for path in found if path.parts[0] not in outside}


def data_files(source: Path) -> set[str]:
    """Files that are not Python: tables of keys, a grammar, programs to compile, styles."""
    outside = {"__pycache__", "target", "image"}
    return {
        path.relative_to(source).as_posix()
        for folder in ("common", "console", "interop", "filtersrv", "spark")
        for path in (source / folder).rglob("*")
        if path.is_file() and path.suffix != ".py" and not outside & set(path.parts)
    }


def test_the_wheel_holds_the_package_and_nothing_else(built: Built) -> None:
    assert built.wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(built.wheel) as wheel:
        names = set(wheel.namelist())
    info = f"trocket-{__version__}.dist-info/"
    grammars = inside(built.source, "*.lark")
    assert grammars
    wanted = inside(built.source, "*.py") | grammars | data_files(built.source) | {"py.typed"}
    assert {name for name in names if not name.startswith(info)} == {
        name if name.startswith(BESIDE) else f"trocket/{name}" for name in wanted
    }
    assert f"{info}licenses/LICENSE" in names


def test_the_sdist_holds_what_the_wheel_is_made_of(built: Built) -> None:
    with tarfile.open(built.sdist) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    wanted = {"pyproject.toml", "README.md", "LICENSE", "py.typed"}
    assert wanted | inside(built.source, "*.py") <= names
    assert not any(name.startswith("tests") for name in names)


def test_the_sdist_names_no_address_that_is_none(built: Built) -> None:
    with tarfile.open(built.sdist) as sdist:
        texts = {each.name: sdist.extractfile(each) for each in sdist if each.isfile()}
        found = [name for name, text in texts.items() if text and b"example.org" in text.read()]
    assert found == []


def test_the_client_brings_few_packages(installed: Installed) -> None:
    assert "trocket" in installed.base
    assert len(installed.base) <= PACKAGES_MAX, installed.base


def test_the_client_can_be_imported_with_what_it_brings(installed: Installed) -> None:
    assert installed.base_client.stderr == ""
    assert installed.base_client.returncode == 0


def test_without_the_extra_the_command_says_what_to_install(installed: Installed) -> None:
    done = installed.base_command
    assert done.stderr == "trocket: the command needs more packages: pip install 'trocket[cli]'\n"
    assert (done.stdout, done.returncode) == ("", 1)


def test_the_harness_runs_from_the_wheel(installed: Installed, tmp_path: Path) -> None:
    environment = installed.environment
    done = environment.run(
        *(environment.trocket, "interop", "run", "--kind", "scenario", "--broker", "trocket"),
        *("--client", "python-trio", "--fault", "none", "--select", "/send_sync/"),
        *("--junit", tmp_path / "junit.xml", "--html", tmp_path / "page.html"),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 cell: 1 passed" in done.stdout
    assert {path.name for path in tmp_path.iterdir()} == {"junit.xml", "page.html"}


def test_with_the_extra_the_command_works(installed: Installed) -> None:
    environment = installed.environment
    done = environment.run(environment.trocket, "--version")
    assert (done.stdout, done.stderr, done.returncode) == (f"trocket {__version__}\n", "", 0)
    keys = environment.run(environment.trocket, "keys", "enablePropertyFilter")
    assert keys.returncode == 0
    assert "supported" in keys.stdout
    # The grammar is a data file: it is there, and can be read.
    parse = "from trocket.common.sql92.parser import parse; parse('a = 1')"
    filters = environment.run(environment.python, "-c", parse)
    assert (filters.stderr, filters.returncode) == ("", 0)


EMBEDDING = """
def test_a_topic_of_its_own(rocketmq_broker, rocketmq_topic):
    assert rocketmq_broker.url.startswith("rocketmq://127.0.0.1:")
    assert rocketmq_topic
"""


def test_pytest_finds_the_fixtures_and_warns_of_nothing(installed: Installed) -> None:
    environment = installed.environment
    (environment.folder / "test_embedding.py").write_text(EMBEDDING, encoding="utf-8")
    done = environment.run(
        environment.python, "-m", "pytest", "-q", "-W", "error", "test_embedding.py"
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 0


def test_the_quick_start_runs_as_it_stands(installed: Installed) -> None:
    blocks = code_blocks((ROOT / "README.md").read_text(encoding="utf-8"), "Quick start")
    if not blocks:
        pytest.skip("README.md has no quick start in Python")
    for number, block in enumerate(blocks):
        program = installed.environment.folder / f"quick_start_{number}.py"
        program.write_text(block, encoding="utf-8")
        done = installed.environment.run(installed.environment.python, "-W", "error", program)
        assert done.returncode == 0, done.stderr
