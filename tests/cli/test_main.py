"""The commands' flags, files and exit statuses, in this process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from trocket import __version__
from trocket.broker.__main__ import main as broker
from trocket.cli.main import main
from trocket.common.config import parse_properties
from trocket.namesrv.__main__ import main as namesrv

from .conftest import completions


def printed(text: str) -> dict[str, str]:
    return {entry.key: entry.value for entry in parse_properties(text)}


def test_paragraphs_of_help_are_wrapped_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["store", "fsck", "--help"]) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    first = next(number for number, line in enumerate(lines) if line.startswith("Checks the sizes"))
    assert lines[first + 1].startswith("compares all consume queues, index entries")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"trocket {__version__}\n"


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    for command in ("up", "broker", "namesrv", "controller", "proxy", "filtersrv", "keys"):
        assert command in out


def test_an_unknown_command_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nosuch"]) == 2
    assert "nosuch" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["up", "broker", "namesrv", "controller", "proxy", "filtersrv"])
def test_each_server_has_help_errors_and_an_example_as_all_commands(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "--help"]) == 0
    out = capsys.readouterr().out
    assert f"Usage: trocket {command} [OPTIONS]" in out
    assert f"Example: trocket {command} " in out
    assert main([command, "--log-levl", "info"]) == 2
    assert "No such option: --log-levl" in capsys.readouterr().err
    assert main([command, "--log-level", "loud"]) == 2
    assert "'loud' is not one of" in capsys.readouterr().err


@pytest.mark.parametrize(("module", "flag"), [(broker, "-m"), (namesrv, "-p")])
def test_a_server_as_a_module_needs_no_typer(
    module: Callable[[list[str]], int], flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        module(["--help"])
    assert end.value.code == 0
    assert flag in capsys.readouterr().out


@pytest.mark.slow
def test_right_flags_start_a_server_without_typer() -> None:
    program = (
        "import sys; from trocket.cli.main import main; main(['broker', '-p']);"
        " sys.exit('typer' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("words", [["broker", "-p"], ["broker", "-m"], ["namesrv", "-p"], ["keys"]])
def test_a_reader_that_closes_the_pipe_gets_no_traceback(words: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)  # as `head` after its last line
    with os.fdopen(write, "wb") as pipe:
        done = subprocess.run(
            [sys.executable, "-m", "trocket.cli.main", *words],
            stdout=pipe, stderr=subprocess.PIPE, text=True, timeout=60,
        )  # fmt: skip
    # -p has the warnings of a start there.
    assert all(": warning: " in line for line in done.stderr.splitlines())


@pytest.mark.slow
def test_servers_flags_and_values_are_completed() -> None:
    assert {"--home", "--memory", "--masters"} <= set(completions("up", "--"))
    assert completions("broker", "--log-level", "w") == ["warning"]


def test_p_prints_a_configuration_that_reads_back(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerName=b\nbrokerIP1=192.0.2.1\nflushDiskType=SYNC_FLUSH\n")
    assert broker(["-c", str(conf), "-n", "192.0.2.9:9876", "-p"]) == 0
    first = capsys.readouterr().out
    assert printed(first)["flushDiskType"] == "SYNC_FLUSH"
    assert printed(first)["namesrvAddr"] == "192.0.2.9:9876"
    conf.write_text(first)
    assert broker(["-c", str(conf), "-p"]) == 0
    assert capsys.readouterr().out == first


def test_m_prints_the_keys_that_rocketmq_calls_important(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert broker(["-m"]) == 0
    keys = printed(capsys.readouterr().out)
    assert {"brokerName", "listenPort", "flushDiskType", "storePathRootDir"} <= set(keys)
    assert "regionId" not in keys


def test_the_name_server_prints_its_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    assert namesrv(["-p"]) == 0
    assert printed(capsys.readouterr().out)["listenPort"] == "9876"


def test_name_servers_come_from_the_environment_as_with_apache(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "192.0.2.3:9876")
    assert broker(["-p"]) == 0
    assert printed(capsys.readouterr().out)["namesrvAddr"] == "192.0.2.3:9876"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("brokerNam=x", "line 1: unknown key 'brokerNam'; the nearest key there is: brokerName"),
        ("\nlistenPort=ten", "line 2: listenPort must be a plain whole number"),
        ("namesrvAddr=here", "is not host:port"),
        ("aclEnable=true", "aclEnable=true: set aclConfigPath"),
    ],
)
@pytest.mark.parametrize("command", [["broker"], ["up"]])
def test_a_wrong_file_is_one_line_and_status_2(
    command: list[str],
    text: str,
    expected: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(text)
    assert main([*command, "-c", str(conf)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert expected in captured.err
    assert str(conf) in captured.err


@pytest.mark.parametrize("command", [broker, namesrv])
def test_a_file_that_cannot_be_read_is_one_line(
    command: Callable[[list[str]], int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(["-c", str(tmp_path / "none.conf")]) == 2
    assert "none.conf: cannot be read: No such file" in capsys.readouterr().err
    assert command(["-c", str(tmp_path)]) == 2
    assert "cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize(
    "flags", [["--broker-port", "2"], ["--broker-port", "65536"], ["--namesrv-port", "-1"]]
)
def test_a_port_flag_must_be_a_port(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["up", *flags]) == 2
    assert "not a usable port" in capsys.readouterr().err


def test_keys_tells_what_a_key_does_here(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", "brokerip"]) == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert ["broker.conf", "brokerIP1", "str", "(first address)", "supported"] in rows
    assert all("brokerip" in row[1].lower() for row in rows)


SLOW_TO_IMPORT = ("typer", "rich", "lz4", "zstandard", "lark", "pydantic", "difflib", "asyncio")


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("metricsExporterType", "supported"),
        ("metricsPromExporterPort", "supported"),
        ("metricsGrpcExporterTarget", "sends them nowhere"),
    ],
)
def test_keys_says_of_a_name_servers_metrics_what_is_true(
    key: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["keys", key]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "namesrv.conf" in line]
    assert words in line


@pytest.mark.slow
def test_the_servers_start_without_what_is_slow_to_import() -> None:
    script = (
        "import sys; from trocket.cli import up; from trocket.namesrv import controller;"
        f"print([name for name in {SLOW_TO_IMPORT!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_p_says_all_that_a_start_would_say_and_ends_as_it_would(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(
        "enableDLegerCommitLog=true\nproxyMode=LOCAL\nlistenPort=x\nmessageDelayLevel=1w\n"
        "brokerNmae=b\nhaAllowedSlaves=99\ntls.server.mode=sometimes\n"
    )
    assert broker(["-c", str(conf), "-p"]) == 1
    checked = capsys.readouterr()
    assert checked.out == ""
    for words in (
        "line 1: enableDLegerCommitLog has no effect",
        "line 2: proxyMode has no effect: it is a key of rmq-proxy.json",
        "line 3: listenPort must be",
        "line 4: messageDelayLevel='1w'",
        "line 5: unknown key 'brokerNmae'; the nearest key there is: brokerName",
        "line 6: haAllowedSlaves='99'",
        "line 7: tls.server.mode",
    ):
        assert words in checked.err, words
    assert broker(["-c", str(conf)]) == 2
    assert capsys.readouterr().err == checked.err


@pytest.mark.parametrize(
    "other_faults",
    ["listenPort=x\n", "tls.server.need.client.auth=maybe\n", "listenPort=x\ntls.enable=x\n", ""],
    ids=["of the server", "of TLS", "of both", "none"],
)
@pytest.mark.parametrize("module", [broker, namesrv], ids=["broker", "namesrv"])
def test_p_reports_metrics_by_tls_without_tls_among_all_other_errors(
    module: Callable[[list[str]], int],
    other_faults: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    conf = tmp_path / "server.conf"
    conf.write_text(f"metricsTlsEnable=true\ntls.server.mode=disabled\n{other_faults}")
    assert module(["-c", str(conf), "-p"]) == 1
    errors = capsys.readouterr().err
    assert "line 1: metricsTlsEnable=true needs tls.server.mode=permissive" in errors
    assert errors.count("server.conf, line") == 1 + other_faults.count("\n")


def test_p_of_a_filter_server_reports_its_filters_among_all_other_errors(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from trocket.filtersrv.__main__ import main as filtersrv

    classes, conf = tmp_path / "missing", tmp_path / "filtersrv.conf"
    conf.write_text(f"listenPort=x\nfilterClassesFile={classes}\n")
    assert filtersrv(["-c", str(conf), "-p"]) == 1
    errors = capsys.readouterr().err
    assert "line 1: listenPort" in errors
    assert f"{classes}: cannot be read" in errors


@pytest.mark.parametrize("module", [broker, namesrv], ids=["broker", "namesrv"])
def test_p_prints_warnings_beside_the_configuration(
    module: Callable[[list[str]], int], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    conf = tmp_path / "server.conf"
    conf.write_text("serverWorkerThreads=8\nenableBatchAck=true\n")
    assert module(["-c", str(conf), "-p"]) == 0
    printed_text = capsys.readouterr()
    assert "warning: " in printed_text.err
    assert "serverWorkerThreads has no effect" in printed_text.err
    assert "enableBatchAck has no effect: it is a key of rmq-proxy.json" in printed_text.err
    assert "listenPort=" in printed_text.out


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("brokerNmae", "near it are brokerName"),
        ("enableBatchAck", "a key of rmq-proxy.json"),
        ("zzqxjw", "has 'zzqxjw' in its name"),
    ],
)
def test_a_key_that_nothing_has_is_an_error(
    name: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["keys", name]) == 1
    caught = capsys.readouterr()
    assert caught.out == ""
    assert words in caught.err
