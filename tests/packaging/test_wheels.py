"""The wheels that `make` builds for other machines: what they are called, hold, and do there."""

from __future__ import annotations

import shutil
import site
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from tests.kit.matrix import first_of
from tests.native.compiler import missing_to_build
from tests.packaging.environments import (
    ROOT,
    Environment,
    make_environment,
    newer_pythons,
    newest_python,
    python_of,
    run,
    this_python,
)
from trocket import __version__
from trocket.testing import Broker

pytestmark = pytest.mark.slow

JUNK = (".*", "__pycache__", "*.egg-info", "build", "dist", "target", "*.so")
NO_COMPILER = {"CC": "/nonexistent/cc", "CXX": "/nonexistent/c++"}

PURE = f"trocket-{__version__}-py3-none-any.whl"
CLIENT = f"trocket_client-{__version__}-py3-none-any.whl"

SIZE_MAX = 2_000_000
"""Bytes of the client's files without byte code; all of trocket has more than 6,700,000."""
INSTALLED_MAX = 5_000_000
"""Bytes that it takes after an installation, with byte code: as much as aiokafka."""

PLACEHOLDER = b"example.org"
"""A name that belongs to no one: in a wheel it would be taken for an address of the project."""

SERVERS = {
    "auth",
    "broker",
    "cli",
    "console",
    "controller",
    "filtersrv",
    "interop",
    "namesrv",
    "operations",
    "proxy",
    "spark",
    "store",
    "testing",
}

SEND = """
import sys
import anyio
import trocket
from trocket.blocking import Message, Producer as BlockingProducer

for name in trocket.__all__:
    getattr(trocket, name)

async def main(url):
    async with trocket.Producer(url) as producer:
        await producer.send(trocket.Message("Carried", "asyncio"))
    with BlockingProducer(url) as producer:
        producer.send(Message("Carried", "threads"))
    async with trocket.PullConsumer(url, group="g") as consumer:
        for queue in await consumer.queues("Carried"):
            if await consumer.end_offset(queue):
                for message in (await consumer.pull(queue, 0)).messages:
                    print(message.text)

anyio.run(main, sys.argv[1])
"""
"""A program of the client that uses each public name, and sends and pulls."""

EMBED = """
from trocket import Message
from trocket.blocking import Producer
from trocket.testing import Broker

with Broker() as broker, Producer(broker.url) as producer:
    producer.send(Message("T", "x"))
    print(len(broker.messages("T")))
"""


@pytest.fixture(scope="module")
def tree(folder: Path) -> Path:
    """A copy of the tree in which `make` finds the environment of the tests."""
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    tree = folder / "source"
    shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(*JUNK))
    (tree / ".venv").mkdir()
    (tree / ".venv" / ".ready-to-run").touch()
    return tree


def make(
    tree: Path, *targets: str, index: bool = True, **variables: str
) -> subprocess.CompletedProcess[str]:
    own = f"BIN={Path(sys.executable).parent}"
    return run("make", *targets, own, folder=tree, index=index, environment=variables)


@pytest.fixture(scope="module")
def dist(tree: Path) -> Path:
    """The folder with all wheels, of which each was built after another one in the same tree."""
    wanted = ["wheel", "wheel-client"]
    if not missing_to_build():
        wanted.insert(1, "wheel-native")
    # A wheel of another kind may be wanted by the environment: make's targets say what they are.
    for target in wanted:
        make(tree, target, TROCKET_PURE="1", TROCKET_CLIENT="1")
    return tree / "dist"


def modules(wheel: Path) -> dict[str, bytes]:
    """The files of a wheel, without its metadata."""
    with zipfile.ZipFile(wheel) as archive:
        return {
            name: archive.read(name) for name in archive.namelist() if ".dist-info/" not in name
        }


def borrowing(folder: Path) -> Environment:
    """An environment that has the packages of the tests' one, without trocket."""
    environment = make_environment(this_python(), folder)
    (packages,) = environment.folder.glob("lib/python*/site-packages")
    known = [path for path in sys.path if Path(path).name == "site-packages"]
    # Folders named in a .pth file have no .pth files themselves: the tree is not found by this.
    lines = "\n".join(dict.fromkeys([*site.getsitepackages(), *known]))
    (packages / "of_the_tests.pth").write_text(lines, encoding="utf-8")
    return environment


def sent(environment: Environment) -> list[str]:
    """What the client of an environment sent to a broker of the tests, as it pulled it again."""
    with Broker() as broker:
        broker.create_topic("Carried", queues=1)
        done = environment.run(environment.python, "-W", "error", "-c", SEND, broker.url)
    assert (done.stderr, done.returncode) == ("", 0)
    return done.stdout.split()


def test_each_wheel_is_named_for_what_it_is(dist: Path) -> None:
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    native = f"trocket-{__version__}-{tag}-{tag}-{platform}.whl"
    wanted = {PURE, CLIENT} if missing_to_build() else {PURE, CLIENT, native}
    assert {path.name for path in dist.iterdir()} == wanted
    for name in wanted:
        has_extension = any(each.endswith(".so") for each in modules(dist / name))
        assert has_extension == (name == native)


def test_no_wheel_has_an_address_that_is_none(dist: Path) -> None:
    for path in dist.iterdir():
        with zipfile.ZipFile(path) as wheel:
            found = [name for name in wheel.namelist() if PLACEHOLDER in wheel.read(name)]
        assert found == [], path.name


def test_the_wheel_of_the_client_has_no_server_and_the_same_files_as_the_whole(dist: Path) -> None:
    whole, client = modules(dist / PURE), modules(dist / CLIENT)
    assert client.items() <= whole.items()
    assert {name.split("/")[1] for name in client}.isdisjoint(SERVERS)
    assert {name.split("/")[0] for name in client} == {"trocket"}
    for folder in ("client", "blocking"):
        start = f"trocket/{folder}/"
        assert {name for name in whole if name.startswith(start)} <= client.keys()
    assert "trocket/py.typed" in client
    assert sum(map(len, client.values())) < SIZE_MAX < 6_000_000 < sum(map(len, whole.values()))


@pytest.mark.parametrize("which", first_of(["this Python", "the newest Python"]))
def test_the_client_alone_sends_and_pulls_where_nothing_else_is_installed(
    dist: Path, folder: Path, which: str
) -> None:
    python = this_python() if which == "this Python" else newest_python()
    if python is None:
        pytest.skip("no Python here is newer than the one that runs the tests")
    environment = make_environment(python, folder / f"client-{which[-10:].replace(' ', '-')}")
    environment.install("--only-binary=:all:", str(dist / CLIENT))
    assert environment.packages() == {
        "anyio", "idna", "msgspec", "trocket-client", "typing_extensions",
    }  # fmt: skip
    assert sent(environment) == ["asyncio", "threads"]
    assert not environment.trocket.exists()
    (package,) = environment.folder.glob("lib/python*/site-packages/trocket")
    compiled = environment.run(environment.python, "-m", "compileall", "-q", package)
    assert compiled.returncode == 0, compiled.stdout
    files = [path for path in package.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < INSTALLED_MAX


def test_the_client_alone_imports_each_of_its_modules_and_names_its_own_extras(
    dist: Path, folder: Path
) -> None:
    environment = borrowing(folder / "each-module")
    environment.install("--no-deps", str(dist / CLIENT))
    names = [
        name.removesuffix("/__init__.py").removesuffix(".py").replace("/", ".")
        for name in modules(dist / CLIENT)
        if name.endswith(".py")
    ]
    code = f"import importlib\nfor name in {names!r}: importlib.import_module(name)"
    done = environment.run(environment.python, "-W", "error", "-c", code)
    assert (done.stderr, done.returncode) == ("", 0)
    hide = "import sys; sys.modules['lz4'] = sys.modules['lz4.frame'] = None"
    ask = "from trocket.remoting.body_compression import CompressionType, compress"
    code = f"{hide}\n{ask}\ncompress(b'x', CompressionType.LZ4)"
    done = environment.run(environment.python, "-c", code)
    assert done.stderr.rstrip().endswith("pip install 'trocket-client[compression]'")


@pytest.mark.parametrize("kind", ["pure", "native"])
def test_a_wheel_of_everything_embeds_a_broker_and_sends(
    dist: Path, folder: Path, kind: str
) -> None:
    found = [path for path in dist.glob("trocket-*.whl") if (path.name == PURE) == (kind == "pure")]
    if not found:
        pytest.skip(missing_to_build())
    environment = borrowing(folder / kind)
    environment.install("--no-deps", str(found[0]))
    done = environment.run(environment.python, "-W", "error", "-c", EMBED)
    assert (done.stdout, done.stderr, done.returncode) == ("1\n", "", 0)
    choice = "from trocket import native; print(native.extension is not None)"
    done = environment.run(environment.python, "-c", choice)
    assert done.stdout == f"{kind == 'native'}\n"
    done = environment.run(environment.trocket, "--version")
    assert done.stdout == f"trocket {__version__}\n"
    assert sent(environment) == ["asyncio", "threads"]


@pytest.mark.matrix  # up to a minute for each Python
@pytest.mark.parametrize("minor", newer_pythons())
def test_each_newer_python_builds_its_own_wheel_which_embeds_a_broker(
    tree: Path, folder: Path, minor: int
) -> None:
    python = python_of(minor)
    if python is None:
        pytest.skip(f"no Python 3.{minor} is here")
    environment = make_environment(python, folder / f"python3.{minor}")
    include = "import sysconfig; print(sysconfig.get_path('include'))"
    header = Path(environment.run(python, "-c", include).stdout.strip(), "Python.h")
    if missing_to_build() or not header.exists():
        pytest.skip(missing_to_build() or f"no headers of Python: {header}")
    out = environment.folder / "wheel"
    words = ("wheel", "--quiet", "--no-deps", "--wheel-dir", out, tree)
    run(*environment.pip, "--disable-pip-version-check", *words, folder=folder, index=True)
    (wheel,) = out.iterdir()
    assert f"-cp3{minor}-cp3{minor}-" in wheel.name
    environment.install("--only-binary=:all:", f"{wheel}[broker]")
    done = environment.run(environment.python, "-W", "error", "-c", EMBED)
    assert (done.stdout, done.stderr, done.returncode) == ("1\n", "", 0)
    choice = "from trocket import native; assert native.extension, native.choice"
    done = environment.run(environment.python, "-c", choice)
    assert (done.stderr, done.returncode) == ("", 0)


def made(tree: Path) -> dict[str, int]:
    """The wheels of a tree and when they were made, in ns."""
    return {path.name: path.stat().st_mtime_ns for path in (tree / "dist").glob("*")}


def test_without_a_compiler_there_is_no_wheel_with_the_extension_and_make_says_why(
    tree: Path,
) -> None:
    before = made(tree)
    done = make(tree, "wheel-native", index=False, **NO_COMPILER)
    assert "needs a C compiler and Python's headers" in done.stderr
    assert "'make wheel' makes a wheel without it" in done.stderr
    assert done.returncode != 0
    assert made(tree) == before
