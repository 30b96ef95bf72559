"""The programs in examples/, built and run as their README says, report what must hold.

What is expected below was seen with Apache's broker 5.5.0: run this with TROCKET_INTEROP_PEER.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import blocks
from trocket.interop.cache import CACHE_FOLDER
from trocket.interop.go_program import GO_ENVIRONMENT, go_tool
from trocket.interop.maven import JAVA_SMALL, compile_sources
from trocket.interop.peer import Cluster

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("java")]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
JAVA_KIT = EXAMPLES.parent / "testkits" / "java"
JAVA_VERSIONS = ("5.5.0", "4.9.7")
BUILD_TIMEOUT_S = 600.0
RUN_TIMEOUT_S = 90
HURRY_S = 1
"""Too short for anything to expire."""
SMALL_MAVEN = {"MAVEN_OPTS": " ".join(JAVA_SMALL)}
GO_KIT = EXAMPLES.parent / "testkits" / "go"
GO_TEST = [go_tool() or "go", "test", "-mod=readonly", "-count=1", "-v", "./..."]
GO_TESTS = 6
"""Tests of the example in Go."""
GO_TIME_TRAVELS = 4
"""Those of them that print how long they took."""

TIME_TRAVELS = 4
"""Tests of the example in Java that print how long they took."""
JUNIT_JARS = ["client", "junit"]
JUNIT_TESTS = 24
"""Tests of the kit for Java and of the example that uses it."""
GOES_WRONG = EXAMPLES.parent / "docs" / "tutorials" / "what_goes_wrong.md"
GOES_WRONG_IMPORTS = """\
package shop;

import static org.junit.jupiter.api.Assertions.*;

import java.time.*;
import java.util.*;
import java.util.concurrent.*;
import org.apache.rocketmq.client.consumer.*;
import org.apache.rocketmq.client.consumer.listener.*;
import org.apache.rocketmq.client.producer.*;
import org.apache.rocketmq.common.message.*;
import org.apache.rocketmq.remoting.protocol.ResponseCode;
import org.junit.jupiter.api.*;
import trocket.junit.*;

"""
GOES_WRONG_IN_GO = """\
package shop

import (
	"context"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"trocket.testkits/trockettest"
)

"""
KIT_AND_TESTS = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>trocket.examples</groupId>
  <artifactId>kit-and-tests</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <modules><module>kit</module><module>tests_in_java</module></modules>
</project>
"""

EXPECTED = {
    "orders": {
        account: [f"{account}-{number}" for number in (1, 2, 3, 4)]
        for account in ("alice", "bob", "carol")
    },
    "quotes_by_tag": {"TRK": [98, 101, 104, 99, 103], "ZEN": [7, 8, 101]},
    "quotes_by_sql": {"TRK": [101, 104, 103], "APX": [49, 48]},
    "balances": {"alice": 700, "bob": 1000, "carol": 600},
    "transactions_answered": {
        "enough-money": "COMMIT_MESSAGE",
        "too-little-money": "ROLLBACK_MESSAGE",
        "dies-after-holding": "UNKNOW",
        "dies-before-holding": "UNKNOW",
    },
    "transactions_asked": {
        "dies-after-holding": "COMMIT_MESSAGE",
        "dies-before-holding": "ROLLBACK_MESSAGE",
    },
    "orders_placed": ["enough-money", "dies-after-holding"],
    "orders_expired": ["limit-1", "limit-3"],
    "orders_filled": ["limit-2"],
    "failures": [],
}


@pytest.fixture
def go() -> None:
    """Go is there, or the test is skipped; under CI=true it fails for want of it."""
    if go_tool() is None and os.environ.get("CI") != "true":
        pytest.skip("no go in PATH")


@pytest.mark.usefixtures("go")
def test_stock_trading_holds_with_each_client_at_the_same_time(
    make_cluster_with: Callable[[Mapping[str, object]], Cluster], tmp_path: Path
) -> None:
    commands = [go_command(), *(java_command(version, tmp_path) for version in JAVA_VERSIONS)]
    cluster = make_cluster_with(keys_of(EXAMPLES / "broker.conf"))
    cluster.start()
    with ExitStack() as stack:

        def start(number: int, timeout_s: int) -> subprocess.Popen[str]:
            options = ["--namesrv", cluster.namesrv_address, "--json"]
            options += ["--run", f"{number}-{timeout_s}", "--timeout", str(timeout_s)]
            return stack.enter_context(killed_at_the_end([*commands[number], *options]))

        running = [start(number, RUN_TIMEOUT_S) for number in range(len(commands))]
        hurried = start(0, HURRY_S)
        for process in running:
            document = document_of(process, status=0)
            repeated = document.pop("orders_repeated")
            assert cluster.label != "trocket" or repeated == []
            late_ms = document.pop("expiry_late_ms")
            assert document == EXPECTED
            assert sorted(late_ms) == ["limit-1", "limit-2", "limit-3"]
            assert min(late_ms.values()) >= 0
        document = document_of(hurried, status=1)
        assert any(text.startswith("orders_expired must be") for text in document["failures"])


def test_junit_tests_that_command_a_broker_pass(tmp_path: Path) -> None:
    class_path = compile_sources(JAVA_VERSIONS[0], junit_sources(), jar_sets=JUNIT_JARS)
    classes = class_path.partition(os.pathsep)[0]
    output = run_junit(class_path, f"--scan-class-path={classes}", tmp_path)
    assert f"{JUNIT_TESTS} tests successful" in output
    assert len(re.findall(r"\d+\.\d\d s of real time", output)) == TIME_TRAVELS


@pytest.mark.matrix  # a broker for each test
def test_what_goes_wrong_in_java_is_as_its_page_says(tmp_path: Path) -> None:
    head, *tests = [block.text for block in blocks(GOES_WRONG) if block.language == "java"]
    source = tmp_path / "GoesWrongTest.java"
    body = head.replace("    // The tests of this page are here.\n", "".join(tests))
    source.write_text(GOES_WRONG_IMPORTS + body, encoding="utf-8")
    sources = [*junit_sources(), source]
    class_path = compile_sources(JAVA_VERSIONS[0], sources, jar_sets=JUNIT_JARS)
    output = run_junit(class_path, "--select-class=shop.GoesWrongTest", tmp_path)
    assert f"{body.count('@Test')} tests successful" in output


def junit_sources() -> list[Path]:
    """The sources of the kit for Java and of the example that uses it."""
    projects = (JAVA_KIT, EXAMPLES / "tests_in_java")
    return sorted(path for project in projects for path in project.glob("src/**/*.java"))


def run_junit(class_path: str, selector: str, folder: Path) -> str:
    """What JUnit prints of the selected tests; they pass."""
    command = ["java", *JAVA_SMALL, f"-Duser.home={folder}", "-cp", class_path]
    command += ["org.junit.platform.console.ConsoleLauncher", "execute", "--disable-banner"]
    command += [selector, "--details=tree", "--disable-ansi-colors"]
    return run_tests("tests_in_java", command, {}, folder)


@pytest.mark.matrix  # Maven's plugins take a minute
def test_junit_tests_pass_as_projects_of_maven(tmp_path: Path) -> None:
    shutil.copytree(JAVA_KIT, tmp_path / "kit", ignore=shutil.ignore_patterns("target"))
    (tmp_path / "pom.xml").write_text(KIT_AND_TESTS, encoding="utf-8")
    command = ["mvn", "-B", "-f", "../pom.xml", "test"]
    output = run_tests("tests_in_java", command, SMALL_MAVEN, tmp_path)
    counts = re.findall(
        r"^\[INFO\] Tests run: (\d+), Failures: 0, Errors: 0, Skipped: 0$", output, re.MULTILINE
    )
    assert sum(map(int, counts)) == JUNIT_TESTS, output


@pytest.mark.usefixtures("go")
def test_go_tests_with_a_broker_of_their_own_pass(tmp_path: Path) -> None:
    output = run_in(EXAMPLES / "tests_in_go", GO_TEST, GO_ENVIRONMENT, tmp_path)
    assert output.count("--- PASS: ") == GO_TESTS
    assert len(re.findall(r"\d+\.\d\d s of real time", output)) == GO_TIME_TRAVELS


@pytest.mark.usefixtures("go")
@pytest.mark.matrix  # a broker for each test
def test_what_goes_wrong_in_go_is_as_its_page_says(tmp_path: Path) -> None:
    body = "\n".join(block.text for block in blocks(GOES_WRONG) if block.language == "go")
    tests = re.findall(r"^func (Test\w+)", body, re.MULTILINE)
    command = [*GO_TEST, "-run", "|".join(tests)]
    project = copied("tests_in_go", tmp_path / "examples")
    shutil.copytree(GO_KIT, tmp_path / "testkits" / "go")  # where its go.mod expects it
    (project / "wrong_test.go").write_text(GOES_WRONG_IN_GO + body, encoding="utf-8")
    output = run_in(project, command, GO_ENVIRONMENT, tmp_path)
    assert output.count("--- PASS: ") == len(tests) > 0


@pytest.mark.usefixtures("go")
def test_the_go_kit_starts_commands_and_ends_brokers(tmp_path: Path) -> None:
    output = run_in(GO_KIT, GO_TEST, GO_ENVIRONMENT, tmp_path)
    assert "--- PASS: TestABrokerEndsWithAKilledTest" in output


def run_tests(
    example: str, command: list[str], environment: Mapping[str, str], folder: Path
) -> str:
    """What the tests of a copy of an example print; they pass."""
    return run_in(copied(example, folder), command, environment, folder)


def copied(example: str, folder: Path) -> Path:
    """A copy of an example."""
    project = folder / example
    shutil.copytree(EXAMPLES / example, project, ignore=shutil.ignore_patterns("target"))
    return project


def run_in(project: Path, command: list[str], environment: Mapping[str, str], folder: Path) -> str:
    """What the tests of a project print; they pass.

    Args:
      folder: for the program `trocket`.
    """
    trocket = folder / "trocket"
    trocket.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m trocket.cli.main "$@"\n')
    trocket.chmod(0o755)
    result = subprocess.run(
        command,
        cwd=project,
        env={**os.environ, **environment, "TROCKET": str(trocket)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=BUILD_TIMEOUT_S,
        check=False,
    )
    assert result.returncode == 0, result.stdout
    return result.stdout


def document_of(process: subprocess.Popen[str], *, status: int) -> dict[str, Any]:
    """What a program reports when it has ended."""
    output, _ = process.communicate(timeout=RUN_TIMEOUT_S + 30)
    assert process.returncode == status, output
    document: dict[str, Any] = json.loads(
        next(line for line in output.splitlines() if line.startswith("{"))
    )
    return document


def keys_of(conf: Path) -> dict[str, object]:
    lines = conf.read_text(encoding="utf-8").splitlines()
    parts = [line.partition(" = ") for line in lines if line and not line.startswith("#")]
    return {key: value for key, _, value in parts}


@contextmanager
def killed_at_the_end(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def java_command(version: str, home: Path) -> list[str]:
    build = ["mvn", "-B", "-q", "package", f"-Drocketmq.version={version}"]
    built = build_example("java", build, SMALL_MAVEN, version)
    jar = built / "target" / "stock-trading.jar"
    return ["java", *JAVA_SMALL, f"-Duser.home={home}", "-jar", str(jar)]


def go_command() -> list[str]:
    build = [go_tool() or "go", "build", "-mod=readonly", "-o", "stock-trading", "."]
    return [str(build_example("go", build, GO_ENVIRONMENT) / "stock-trading")]


def build_example(
    language: str, command: list[str], environment: Mapping[str, str], version: str = "all"
) -> Path:
    """A copy of the project in the cache folder, built when the project changed."""
    project = EXAMPLES / "stock_trading" / language
    sources = [path for path in sorted(project.rglob("*")) if path.is_file()]
    ours = [path for path in sources if path.suffix in (".java", ".xml", ".go", ".mod", ".sum")]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in ours)).hexdigest()[:12]
    folder = CACHE_FOLDER / "examples" / f"{language}-{version}-{digest}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".build-") as scratch:
            fresh = Path(scratch) / language
            shutil.copytree(project, fresh, ignore=shutil.ignore_patterns("target"))
            result = subprocess.run(
                command,
                cwd=fresh,
                env={**os.environ, **environment},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=BUILD_TIMEOUT_S,
                check=False,
            )
            assert result.returncode == 0, result.stdout
            fresh.rename(folder)
    return folder
