"""The house rules that no other tool checks. Each failure says what to write instead."""

from __future__ import annotations

import ast
import dataclasses
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from trocket.broker.settings.config import BrokerConfig
from trocket.controller.config import ControllerConfig
from trocket.disk.memory_disk import MemoryDisk
from trocket.filtersrv.config import FiltersrvConfig
from trocket.namesrv.config import NamesrvConfig
from trocket.store.config import MessageStoreConfig
from trocket.store.message_store import MessageStore

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = (
    "native",
    "common",
    "remoting",
    "grpc_protocol",
    "grpc_server",
    "disk",
    "store",
    "auth",
    "namesrv",
    "controller",
    "broker",
    "filtersrv",
    "proxy",
    "client",
    "testing",
    "spark",
    "blocking",
    "interop",
    "operations",
    "console",
    "cli",
    "integrations",
)
"""The folders of the import package; the rest of the root is not installed."""

FOUND_BY_SPARK = {"pyspark_rocketmq", "pyspark_rocketmq_store"}
"""Packages of one line beside `trocket`: Spark looks for formats in packages of such names."""

USERS_PROGRAMS = ("interop/clients/python/", "interop/clients/cpp/")
"""Written as a user of the package would write them."""

FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70
"""Alarms, no walls. A longer one that has two ideas is divided; one that has one idea is listed
with the reason. Three files that hide an idea are worse than one long file that has it."""

LONG_FILES: dict[str, str] = {}
"""Files that are longer, and the reason."""

LONG_FUNCTIONS: dict[str, str] = {
    "cli/console.py:console": "its parameters are the flags of the command",
    "integrations/faststream/registrator.py:subscriber": "its parameters are a user's options",
    "store/writing/message_appender.py:put_message": "a call in it costs 5 %",
}
"""Functions that are longer, as `path:name`, and the reason."""

POSITIONAL_MAX = 7
"""Arguments that are given by position, to a function or for a new value. Of more of them a reader
does not see which is which: they are a value without a name, or belong behind a `*`."""

IN_C = "a function in C: reading arguments by name would cost as much as the rest"

MANY_PARAMETERS: dict[str, str] = {
    "decode_frames": IN_C,
    "export": "a command",
    "pack_batch": IN_C,
    "grpc_message": IN_C,
    "pack_put": IN_C,
    "pack_deliveries": IN_C,
    "pack_sends": IN_C,
    "take_transactions": IN_C,
    "take_pulls": IN_C,
}
"""Functions that may have more, and the reason. Commands may, too: typer reads their options from
the signature."""

COMMAND_PARAMETERS = {"as_json", "shared", "url"}
"""Every command with many options has one of these."""

HOT = "made for each frame, message or run, and names of arguments double the time of that"
PARTS = "parts of one assembly, each of its own type: mypy finds two that are exchanged"

MANY_VALUES: dict[str, str] = {
    "CachedHalf": HOT,
    "GetMessageResult": HOT,
    "Holding": HOT,
    "InnerMessage": HOT,
    "JsonHeader": HOT,
    "MessageExt": HOT,
    "Receipt": HOT,
    "RemotingCommand": HOT,
    "SendResult": HOT,
    "SendRules": HOT,
}
"""Classes whose values may be made from more arguments by position, and the reason."""

SAYING_NOTHING_LEFT = ("broker/", "cli/", "client/", "disk/", "remoting/", "store/")
"""Folders from which the lines of docstrings that say nothing are still to be removed."""

STORE_MEMBERS_MAX = 50
"""Public attributes of a `MessageStore`. Where one more is wanted, it belongs to a part."""


@dataclasses.dataclass(frozen=True)
class Ban:
    """A pattern that no line may have, what to write instead, and the files that may."""

    pattern: str
    instead: str
    allowed: tuple[str, ...] = ()


ATTACKS = ("tests/filtersrv/workers/test_attacks.py",)
"""Sources that are uploaded to break out."""

BANS = [
    Ban(
        r"\btime\.time(_ns)?\(|\bdatetime\.(now|utcnow|today)\(",
        "Clock.wall_ms",
        (
            "common/clock.py",
            "client/tasks/clock.py",
            # Programs of a user, against real brokers.
            "interop/clients/python/later.py",
            "interop/clients/python/pull.py",
            "interop/clients/python/through.py",
            "interop/clients/cpp/scenarios.py",
            "interop/clients/python_grpc/scenarios.py",
        ),
    ),
    Ban(
        r"\btime\.sleep\(",
        "wait for the condition itself, or trio.sleep on a MockClock",
        ATTACKS,
    ),
    Ban(r"^\s*except\s*:", "name the exceptions"),
    Ban(r"\b(TODO|FIXME|XXX)\b", "do it, or write an issue"),
    Ban(
        r"shell=True|\bos\.(system|popen)\(",
        "a list of arguments, and never a value from the wire",
        ATTACKS,
    ),
    Ban(r"\b(pickle|marshal|shelve)\.|(?<![.\w])(eval|exec)\(", "parse it"),
    Ban(
        r"^\s*(from|import) asyncio\b",
        "trio; anyio in the client",
        (
            # The clock of whichever loop the client runs in.
            "client/tasks/clock.py",
            # TCP on asyncio without the cost of anyio's streams; on trio it needs no import.
            "client/connection/transport.py",
            # Threads of handlers call back into whichever loop the client runs in.
            "client/tasks/loop_call.py",
            # The task of a client's background tasks; anyio has none outside of a task group.
            "client/tasks/task_host.py",
            # uvicorn serves on asyncio's loop, and its connections have their timers there.
            "console/server.py",
            # The thread behind the blocking client runs asyncio's loop, and hands over to it.
            "blocking/loop_object.py",
            "blocking/loop_thread.py",
            "blocking/send_queue.py",
            "blocking/transaction_producer.py",
            "tests/blocking/test_blocking_object.py",
            # FastStream runs on asyncio.
            "integrations/faststream/receiver.py",
            "integrations/faststream/subscriber.py",
            "tests/integrations/faststream/test_broker.py",
            "tests/integrations/faststream/test_memory.py",
            # A loop that anyio did not start.
            "tests/client/test_open_close.py",
            "tests/client/test_handler_run.py",
            # Programs as users of asyncio write them.
            "tests/attacks/hostile/__main__.py",
            "tests/client/frameworks/loaded_service.py",
            "tests/client/frameworks/service.py",
            "tests/client/frameworks/workers.py",
            "tests/client/orderly_member.py",
            "tests/testing/test_advance_asyncio.py",
        ),
    ),
    Ban(r"^\s*#\s*(type|mypy): ignore\s*$", "name the error code"),
]


def sources(*folders: str) -> Iterator[Path]:
    """Every Python file of the root itself and of these folders."""
    yield from sorted(ROOT.glob("*.py"))
    for folder in folders:
        yield from sorted((ROOT / folder).rglob("*.py"))


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


EVERYTHING = [path for path in sources(*PACKAGES, "tests", "bench") if path != Path(__file__)]
BANNED_IN = [path for path in EVERYTHING if not path.is_relative_to(ROOT / "bench")]
"""Benchmarks measure real time."""


@pytest.mark.slow
@pytest.mark.parametrize("ban", BANS, ids=lambda ban: ban.instead)
def test_what_is_banned_has_a_replacement(ban: Ban) -> None:
    pattern = re.compile(ban.pattern)
    found = [
        f"{name(path)}:{number}: {line.strip()}"
        for path in BANNED_IN
        if name(path) not in ban.allowed
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if pattern.search(line)
    ]
    assert found == [], f"write instead: {ban.instead}"


SHOWN_IMPORTS = (
    "blocking/__init__.py",
    "integrations/faststream/__init__.py",
    "integrations/kombu/__init__.py",
    "spark/__init__.py",
)
"""Their docstrings show what a user writes."""


RUN_AS_FILES = ("spark/jobs/",)
"""`spark-submit` takes files, in which no import can be relative."""


def test_inside_the_package_imports_are_relative() -> None:
    absolute = re.compile(r"^\s*(from|import) trocket\b")
    found = [
        f"{name(path)}:{number}: {line.strip()}"
        for path in sources(*PACKAGES)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if absolute.match(line)
        and name(path) not in SHOWN_IMPORTS
        and not name(path).startswith((*USERS_PROGRAMS, *RUN_AS_FILES))
    ]
    assert found == []


def check_alarms(measured: Mapping[str, int], limit: int, exceptions: Mapping[str, str]) -> None:
    """Nothing is above the limit but the exceptions, which have reasons and are still needed."""
    above = {key: size for key, size in measured.items() if size > limit}
    assert {key: size for key, size in above.items() if key not in exceptions} == {}
    assert all(exceptions.values())
    assert exceptions.keys() - above.keys() == set(), "no longer needed"


def functions(*folders: str) -> Iterator[tuple[Path, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """The functions and methods in these folders, with their files."""
    for path in sources(*folders):
        for node in ast.walk(parsed(path)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield path, node


def test_a_file_that_is_long_has_one_idea() -> None:
    lines = {name(path): path.read_text(encoding="utf-8").count("\n") for path in EVERYTHING}
    check_alarms(lines, FILE_LINES_MAX, LONG_FILES)


@pytest.mark.slow
def test_a_function_that_is_long_has_one_idea() -> None:
    measured = {
        f"{name(path)}:{node.name}": (node.end_lineno or node.lineno) - node.lineno + 1
        for path, node in functions(*PACKAGES, "tests", "bench")
    }
    check_alarms(measured, FUNCTION_LINES_MAX, LONG_FUNCTIONS)


def positional_count(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The parameters that can be given by position, but for `self` and `cls`.

    0 for commands: nothing calls them.
    """
    names = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
    if COMMAND_PARAMETERS.intersection(names):
        return 0
    return len(names) - (names[:1] in (["self"], ["cls"]))


@pytest.mark.slow
def test_functions_take_few_positional_parameters() -> None:
    measured: dict[str, int] = {}
    for _, node in functions(*PACKAGES):
        measured[node.name] = max(measured.get(node.name, 0), positional_count(node))
    check_alarms(measured, POSITIONAL_MAX, MANY_PARAMETERS)


def new_values(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Class and number of arguments by position of each call of a class, `cls` included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if called[:1].isupper():
                yield called, len(node.args)
        elif isinstance(node, ast.ClassDef):
            for each in ast.walk(node):
                if isinstance(each, ast.Call) and getattr(each.func, "id", "") == "cls":
                    yield node.name, len(each.args)


@pytest.mark.slow
def test_values_are_made_from_few_positional_arguments() -> None:
    measured: dict[str, int] = {}
    for path in sources(*PACKAGES, "bench"):
        for called, count in new_values(parsed(path)):
            measured[called] = max(measured.get(called, 0), count)
    check_alarms(measured, POSITIONAL_MAX, MANY_VALUES)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("Message(1, 2, topic=3)", [("Message", 2)]),
        ("bodies.Message(1)", [("Message", 1)]),
        ("class Message:\n    def f(cls): cls(1, 2, 3)", [("Message", 3)]),
        ("message(1, 2)", []),
    ],
)
def test_what_makes_a_value(source: str, expected: list[tuple[str, int]]) -> None:
    assert list(new_values(ast.parse(source))) == expected


def test_no_module_has_a_name_of_the_standard_library() -> None:
    """Python that is started in a module's folder finds it in the place of its own."""
    found = set()
    for folder in (*PACKAGES, *FOUND_BY_SPARK, "bench", "deploy", "docs", "examples", "tests"):
        for path in (ROOT / folder, *(ROOT / folder).rglob("*")):
            is_module = path.is_dir() or path.suffix == ".py"
            if is_module and path.stem in sys.stdlib_module_names and holds_modules(path):
                found.add(name(path))
    found |= {path.name for path in ROOT.glob("*.py") if path.stem in sys.stdlib_module_names}
    assert found == set()


def holds_modules(path: Path) -> bool:
    """Whether it is a file, or a folder with Python files: an empty one is left by `git mv`."""
    return path.is_file() or any(path.rglob("*.py"))


SAYS_NOTHING = re.compile(r"^\s+[\w, *]+: (as above|the \w+'s|of the \w+|its)\.$")
"""A line of a docstring that repeats a parameter's name and type, such as "log: the store's."."""


@pytest.mark.slow
def test_docstrings_have_no_lines_that_say_nothing() -> None:
    found = [
        f"{name(path)}:{number}: {line.strip()}"
        for path in EVERYTHING
        if not name(path).startswith(SAYING_NOTHING_LEFT)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if SAYS_NOTHING.match(line)
    ]
    assert found == [], "leave the line out"


def test_the_face_of_the_store_stays_small() -> None:
    store = MessageStore(MessageStoreConfig(), disk=MemoryDisk())
    members = [member for member in dir(store) if not member.startswith("_")]
    assert len(members) <= STORE_MEMBERS_MAX, members


def public_nodes(body: list[ast.stmt], prefix: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Public classes, functions and methods, overloads and property setters left out."""
    for node in body:
        if not isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
        if node.name.startswith("_") or any(
            text.endswith((".setter", "overload", "override")) for text in decorators
        ):
            continue
        yield prefix + node.name, node
        if isinstance(node, ast.ClassDef):
            yield from public_nodes(node.body, f"{prefix}{node.name}.")


UNIT_SUFFIXES = (
    "_s",
    "_ms",
    "_ns",
    "_us",
    "_bytes",
    "_size",
    "_length",
    "_count",
    "_percent",
    "_ratio",
    "_id",
    "_offset",
    "_number",
    "_code",
    "_port",
    "_nums",
    "_times",
    "_timestamp",
    "_level",
    "_flag",
)
"""Endings that say what a number counts; `_min` and `_max` may follow. The names without an
underscore, such as `offset`, count too."""

NUMBERS = {"int", "float", "int | None", "float | None"}


def _says_its_unit(parameter: str) -> bool:
    stem = re.sub(r"_(min|max)$", "", parameter)
    return f"_{stem}".endswith(UNIT_SUFFIXES)


def _own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function's body, without those of functions inside it."""
    for node in ast.iter_child_nodes(function):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            yield node
            yield from _own_nodes(node)


def needs_docstring(node: ast.AST) -> bool:
    """Whether a public class or function has something to say that its signature does not.

    Classes do; functions do when they raise an error themselves, or take a number whose name does
    not say its unit. A docstring that only repeats the name is left out.
    """
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return True
    raised = [each.exc for each in _own_nodes(node) if isinstance(each, ast.Raise) and each.exc]
    if any(not ast.unparse(each).startswith("NotImplementedError") for each in raised):
        return True
    arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
    return any(
        each.annotation is not None
        and ast.unparse(each.annotation) in NUMBERS
        and not _says_its_unit(each.arg)
        for each in arguments
    )


@pytest.mark.slow
def test_docstrings_stand_where_they_carry_something() -> None:
    missing = []
    for path in sources(*PACKAGES):
        if name(path).startswith(USERS_PROGRAMS):
            continue
        tree = parsed(path)
        if not ast.get_docstring(tree):
            missing.append(name(path))
        missing += [
            f"{name(path)}:{label}"
            for label, node in public_nodes(tree.body)
            if needs_docstring(node) and not ast.get_docstring(node)  # type: ignore[arg-type]
        ]
    assert missing == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("class Log: ...", True),
        ("def close(self) -> None: ...", False),
        ("def check(self) -> None: raise ValueError(1)", True),
        ("def encode(self) -> bytes: raise NotImplementedError", False),
        ("def run(self) -> None:\n    def inner() -> None: raise ValueError(1)", False),
        ("def wait(self, timeout_s: float, queue_id: int, offset: int) -> None: ...", False),
        ("def wait(self, size_bytes_max: int | None) -> None: ...", False),
        ("def wait(self, timeout: float) -> None: ...", True),
    ],
)
def test_what_needs_a_docstring(source: str, expected: bool) -> None:
    assert needs_docstring(ast.parse(source).body[0]) is expected


BANNED_WORDS = re.compile(
    r"\btold\b|_told\b|\b(who|why)ever\b|\b(no|some)body\b|\bso many\b|\bof its own\b"
    r"|by which it is called",
    re.IGNORECASE,
)
"""Household words that stand where a term of the field belongs: say "the broker returned", "a
client that", "no consumer", "`count` messages", "its own"."""

RIDDLE = re.compile(r'"""(What|Who|Which|How|Where|Whether)\b')
"""The beginning of a module docstring that asks a question. A noun says what the module is."""

WORD_SUFFIXES = {".py", ".go", ".java", ".md"}
GENERATED = ("docs/compatibility.md", "docs/states.md")

CELL_NAMES = "names of cells, by which reports of earlier runs are compared"

WORDS_ALLOWED: dict[str, tuple[int, str]] = {
    "interop/wire_differ/clients_requests.py": (11, CELL_NAMES),
    "interop/wire_differ/groups_requests.py": (6, CELL_NAMES),
    "interop/wire_differ/known_bugs.py": (3, CELL_NAMES),
    "interop/wire_differ/messages_requests.py": (2, CELL_NAMES),
    "interop/wire_differ/namesrv_requests.py": (12, CELL_NAMES),
    "interop/wire_differ/pulls_requests.py": (3, CELL_NAMES),
    "interop/wire_differ/sends_requests.py": (2, CELL_NAMES),
    "interop/wire_differ/timers_requests.py": (1, CELL_NAMES),
    "interop/wire_differ/topics_requests.py": (2, CELL_NAMES),
}
"""Lines of a file in which such a word is the right one, and the reason. Keep them exact."""


def words_by_file() -> dict[str, list[str]]:
    """The lines with a banned word, and module docstrings that begin with a question word."""
    found: dict[str, list[str]] = {}
    paths = [ROOT / "README.md", *ROOT.glob("*.py")]
    for folder in (*PACKAGES, "docs", "examples", "testkits"):
        paths += sorted((ROOT / folder).rglob("*"))
    for path in paths:
        if path.suffix not in WORD_SUFFIXES or name(path) in GENERATED:
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            is_riddle = number == 1 and path.suffix == ".py" and RIDDLE.match(line)
            if is_riddle or BANNED_WORDS.search(line):
                found.setdefault(name(path), []).append(f"{name(path)}:{number}: {line.strip()}")
    return found


@pytest.mark.slow
def test_words_are_those_of_the_field() -> None:
    lines = words_by_file()
    counts = {path: len(lines.get(path, [])) for path in WORDS_ALLOWED}
    assert counts == {path: count for path, (count, _) in WORDS_ALLOWED.items()}
    assert all(reason for _, reason in WORDS_ALLOWED.values())
    assert [line for path in lines.keys() - WORDS_ALLOWED.keys() for line in lines[path]] == []


def project() -> dict[str, object]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_every_package_is_listed_in_pyproject() -> None:
    listed = project()["tool"]["setuptools"]["packages"]  # type: ignore[index]
    found = {
        ".".join(["trocket", *path.parent.relative_to(ROOT).parts])
        for path in sources(*PACKAGES)
        if path.name == "__init__.py"
    }
    assert set(listed) - FOUND_BY_SPARK == found
    assert all((ROOT / package / "__init__.py").exists() for package in FOUND_BY_SPARK)
    for path in sources(*PACKAGES):
        assert (path.parent / "__init__.py").exists(), f"{name(path)} is in no package"


def test_every_dependency_has_its_line() -> None:
    facts = project()["project"]
    extras = facts["optional-dependencies"]  # type: ignore[index]
    wanted = [*facts["dependencies"], *(each for extra in extras.values() for each in extra)]  # type: ignore[index]
    names = {re.split(r"[<>=;\[ ]", each)[0] for each in wanted} - {"trocket"}
    page = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([a-z0-9-]+) \| [^|]*[A-Za-z]{3}", page, re.MULTILINE)
    assert names <= set(rows)
    assert (set(rows) - names) <= {"package", "import", "argparse", "rich.console"}


LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)")


@pytest.mark.parametrize(
    "page", [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")], ids=lambda path: name(path)
)
def test_the_links_of_the_docs_lead_somewhere(page: Path) -> None:
    targets = LINK.findall(page.read_text(encoding="utf-8"))
    assert [target for target in targets if not (page.parent / target).exists()] == []


READ_ELSEWHERE = {
    "BrokerConfig": {"auth", "broker", "cli", "filtersrv", "remoting"},
    "ControllerConfig": {"auth", "controller", "remoting"},
    "FiltersrvConfig": {"auth", "filtersrv", "broker", "remoting"},
    "NamesrvConfig": {"auth", "namesrv", "cli", "remoting"},
    "MessageStoreConfig": {"store", "broker"},
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "config",
    [BrokerConfig, ControllerConfig, FiltersrvConfig, NamesrvConfig, MessageStoreConfig],
)
def test_a_supported_key_is_one_that_something_reads(config: type) -> None:
    folders = READ_ELSEWHERE[config.__name__]
    files = [path for path in sources(*folders) if path.name != "__main__.py"]
    text = "\n".join(path.read_text(encoding="utf-8") for path in files)
    unread = [
        field.name
        for field in dataclasses.fields(config)
        if not re.search(rf"\.{field.name}\b(?! *=[^=])", text)
    ]
    assert unread == []
