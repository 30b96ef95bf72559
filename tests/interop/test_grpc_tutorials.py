"""The programs of the tutorials for RocketMQ's gRPC clients, run as they stand on the pages."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Block, blocks, pattern
from trocket.interop.go_program import GO_ENVIRONMENT, GO_GRPC_FOLDER, go_tool
from trocket.interop.maven import fetch_jars
from trocket.interop.node_program import missing_for_node, node_modules
from trocket.interop.peer import Cluster
from trocket.interop.peers import open_cluster
from trocket.interop.python_grpc_program import PYTHON_GRPC_WHEEL
from trocket.interop.scenarios.table import GRPC_JAVA, GRPC_PYTHON
from trocket.interop.wheel_environment import wheel_python
from trocket.interop.wire import WireClient

ENDPOINT = "127.0.0.1:10911"
"""What the pages have; here the broker has a free port."""
TIMEOUT_S = 120.0

pytestmark = pytest.mark.interop


@pytest.fixture
def cluster(short_polls: None, tmp_path: Path) -> Iterator[Cluster]:
    made = open_cluster("trocket", tmp_path / "cluster")
    try:
        made.start()
        with WireClient(made.broker_address) as wire:
            wire.create_topic("Orders", queue_count=4)
            wire.create_topic("Reminders", queue_count=4, message_type="DELAY")
        yield made
    finally:
        made.close()


def in_java(folder: Path, text: str) -> list[str]:
    (folder / "Program.java").write_text(text, encoding="utf-8")
    jars = fetch_jars(GRPC_JAVA.removeprefix("grpc-java-"), "grpc")
    return ["java", f"-Duser.home={folder}", "-cp", f"{jars}/*", "Program.java"]


def in_python(folder: Path, text: str) -> list[str]:
    (folder / "program.py").write_text(text, encoding="utf-8")
    version = GRPC_PYTHON.removeprefix("grpc-python-")
    wheel = f"{PYTHON_GRPC_WHEEL}=={version}"
    return [str(wheel_python(f"python-grpc-{version}", wheel, "rocketmq")), "program.py"]


def in_go(folder: Path, text: str) -> list[str]:
    tool = go_tool()
    if tool is None:
        pytest.skip("no go in PATH")
    (folder / "main.go").write_text(text, encoding="utf-8")
    for name in ("go.mod", "go.sum"):
        shutil.copy(GO_GRPC_FOLDER / name, folder)
    return [tool, "run", "-mod=readonly", "."]


def in_node(folder: Path, text: str) -> list[str]:
    reason = missing_for_node()
    if reason is not None:
        pytest.skip(reason)
    (folder / "program.js").write_text(text, encoding="utf-8")
    modules = folder / "node_modules"
    if not modules.exists():
        modules.symlink_to(node_modules())
    return ["node", "program.js"]


@pytest.mark.parametrize(
    ("page", "language", "command_of"),
    [
        ("grpc_java", "java", in_java),
        ("grpc_python", "python", in_python),
        ("grpc_go", "go", in_go),
        ("grpc_nodejs", "js", in_node),
    ],
)
def test_the_programs_of_a_tutorial_run(
    cluster: Cluster,
    tmp_path: Path,
    page: str,
    language: str,
    command_of: Callable[[Path, str], list[str]],
) -> None:
    programs = programs_of(page, language)
    assert len(programs) == 4
    for block in programs:
        text = block.text.replace(ENDPOINT, cluster.broker_address)
        assert text != block.text
        command = command_of(tmp_path, text)
        environment = {"HOME": str(tmp_path), **cache_variables(), **GO_ENVIRONMENT}
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        place = f"{page}:{block.line}"
        assert done.returncode == 0, f"{place}:\n{done.stdout}{done.stderr}"
        assert pattern(block.output or "").fullmatch(done.stdout), f"{place}:\n{done.stdout}"


def programs_of(page: str, language: str) -> list[Block]:
    """The blocks of a page that say what they print."""
    found = blocks(ROOT / "docs" / "tutorials" / f"{page}.md")
    return [each for each in found if each.language == language and each.output is not None]


def cache_variables() -> dict[str, str]:
    """Where Go keeps what it fetched and built, which goes by HOME otherwise."""
    tool = go_tool()
    if tool is None:
        return {}
    names = ("GOMODCACHE", "GOCACHE", "GOPATH")
    done = subprocess.run(
        [tool, "env", *names], capture_output=True, text=True, timeout=TIMEOUT_S, check=True
    )
    return dict(zip(names, done.stdout.splitlines(), strict=True))
