"""The files of ACL 1.0: several, watched, and changed by requests."""

from __future__ import annotations

import logging
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
import yaml

from trocket.auth.plain_acl import PlainAclError
from trocket.auth.plain_acl_files import FILES_MAX, PlainAclFiles
from trocket.common.clock import ManualClock
from trocket.common.config import ConfigError
from trocket.disk.os_disk import OsDisk
from trocket.remoting.bodies import PlainAccessConfig


def text_of(*names: str, secret: str = "secret-of-it") -> str:
    accounts = [{"accessKey": name, "secretKey": secret} for name in names]
    return yaml.safe_dump({"accounts": accounts})


def files_in(folder: Path) -> PlainAclFiles:
    files = PlainAclFiles(str(folder), clock=ManualClock(), disk=OsDisk())
    files.load()
    return files


def run(test: Callable[[], object]) -> None:
    """Run a test with the real clock: files are read in threads."""
    trio.run(test)


async def settle(files: PlainAclFiles) -> bool:
    """Two looks, which a change needs."""
    await files.look()
    return await files.look()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "acl" / "team").mkdir(parents=True)
    (tmp_path / "plain_acl.yml").write_text(text_of("of-main", "of-both"))
    (tmp_path / "acl" / "b.yml").write_text(text_of("of-file-b", "of-both", secret="secret-of-b"))
    (tmp_path / "acl" / "team" / "c.yaml").write_text(text_of("of-team"))
    (tmp_path / "acl" / "tools.yml").write_text("accessKey: a\n")
    (tmp_path / "acl" / "notes.txt").write_text("{")
    return tmp_path


def test_all_files_are_read_the_main_one_last(folder: Path) -> None:
    files = files_in(folder)
    assert sorted(files.acl.accounts) == ["of-both", "of-file-b", "of-main", "of-team"]
    assert files.acl.accounts["of-both"].secret_key == "secret-of-b"
    assert [Path(file.path).name for file in files.acl.files] == [
        "b.yml",
        "c.yaml",
        "plain_acl.yml",
    ]


def test_no_file_is_an_error_that_names_the_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no plain_acl\.yml.*aclConfigPath") as caught:
        files_in(tmp_path)
    assert str(tmp_path) in str(caught.value)


def test_a_bad_file_stops_the_start(folder: Path) -> None:
    (folder / "acl" / "b.yml").write_text("accounts: [")
    with pytest.raises(ConfigError, match=r"b\.yml, line"):
        files_in(folder)


def test_an_unreadable_file_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "plain_acl.yml").mkdir()
    with pytest.raises(ConfigError, match=r"plain_acl\.yml: it cannot be read"):
        files_in(tmp_path)


def test_too_many_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "acl").mkdir()
    for number in range(FILES_MAX + 1):
        (tmp_path / "acl" / f"{number}.yml").touch()
    with pytest.raises(ConfigError, match=f"the limit is {FILES_MAX}"):
        files_in(tmp_path)


def test_who_may_read_the_file_is_warned_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    main = tmp_path / "plain_acl.yml"
    main.write_text(text_of("account-1"))
    main.chmod(0o644)

    async def test() -> None:
        files = files_in(tmp_path)
        main.write_text(text_of("account-2"))
        assert await settle(files)
        assert caplog.text.count("chmod 600") == 1

    run(test)


def test_changed_files_are_taken_when_two_looks_agree(folder: Path) -> None:
    async def test() -> None:
        files = files_in(folder)
        assert not await settle(files)
        (folder / "acl" / "b.yml").write_text(text_of("of-b-now"))
        assert not await files.look()  # an editor may have written only a part of it
        assert "of-b-now" not in files.acl.accounts
        assert await files.look()
        assert sorted(files.acl.accounts) == ["of-b-now", "of-both", "of-main", "of-team"]
        assert files.acl.accounts["of-both"].secret_key == "secret-of-it"
        (folder / "acl" / "team" / "c.yaml").unlink()
        (folder / "acl" / "d.yml").write_text(text_of("of-d-too"))
        assert await settle(files)
        assert sorted(files.acl.accounts) == ["of-b-now", "of-both", "of-d-too", "of-main"]

    run(test)


def test_bad_files_keep_the_accounts(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        files = files_in(folder)
        before = files.acl
        for damage in ("accounts: [", text_of("short"), "accounts: 5"):
            caplog.clear()
            (folder / "plain_acl.yml").write_text(damage)
            for _ in range(4):
                assert not await files.look()
            assert files.acl is before
            (line,) = [each for each in caplog.records if each.levelno == logging.ERROR]
            assert "The accounts stay as they were" in line.getMessage()
        for name in ("plain_acl.yml", "acl/b.yml", "acl/team/c.yaml"):
            (folder / name).unlink()
        assert not await settle(files)
        assert files.acl is before
        (folder / "plain_acl.yml").write_text(text_of("account-1"))
        assert await settle(files)
        assert list(files.acl.accounts) == ["account-1"]

    run(test)


def test_a_change_is_in_the_file_and_in_use(folder: Path) -> None:
    async def test() -> None:
        files = files_in(folder)
        main = folder / "plain_acl.yml"
        original = main.read_bytes()
        await files.update_account(PlainAccessConfig("account-new", "secret-new"))
        assert files.acl.accounts["account-new"].secret_key == "secret-new"
        assert files.acl.file_of["account-new"] == str(main)
        assert stat.S_IMODE(main.stat().st_mode) == 0o600
        assert main.with_name("plain_acl.yml.bak").read_bytes() == original
        await files.update_account(PlainAccessConfig("of-file-b", "secret-too"))
        assert files.acl.file_of["of-file-b"] == str(folder / "acl" / "b.yml")
        assert files.acl.accounts["of-file-b"].secret_key == "secret-too"
        assert await files.delete_account("of-team")
        assert not await files.delete_account("of-team")
        assert "of-team" not in files.acl.accounts
        again = files_in(folder)
        assert again.acl.accounts == files.acl.accounts
        counters = {Path(each.path).name: each.version.counter for each in files.acl.files}
        assert counters == {"b.yml": 1, "c.yaml": 1, "plain_acl.yml": 1}

    run(test)


def test_white_addresses_of_one_file(folder: Path) -> None:
    async def test() -> None:
        files = files_in(folder)
        assert await files.set_white_addresses(["10.0.0.1"], "")
        assert await files.set_white_addresses(["10.0.0.2"], str(folder / "acl" / "b.yml"))
        assert [each.text for each in files.acl.white_addresses] == ["10.0.0.2", "10.0.0.1"]
        for path in (folder / "acl" / "notes.txt", "/etc/passwd", folder / "acl" / "new.yml"):
            assert not await files.set_white_addresses(["10.0.0.3"], str(path))
        with pytest.raises(PlainAclError):
            await files.set_white_addresses(["nonsense"], "")
        assert [each.text for each in files.acl.white_addresses] == ["10.0.0.2", "10.0.0.1"]

    run(test)


def test_the_main_file_is_made_by_the_first_change(tmp_path: Path) -> None:
    async def test() -> None:
        (tmp_path / "acl").mkdir()
        (tmp_path / "acl" / "a.yml").write_text(text_of("account-1"))
        files = files_in(tmp_path)
        await files.update_account(PlainAccessConfig("account-2", "secret-of-2"))
        assert files.acl.file_of["account-2"] == str(tmp_path / "plain_acl.yml")

    run(test)


def test_a_change_that_cannot_be_saved_changes_nothing(folder: Path) -> None:
    class FullDisk(OsDisk):
        def open(self, path: str, *, create: bool = False, private: bool = False):  # type: ignore[no-untyped-def]
            from trocket.disk.errors import StoreIOError

            raise StoreIOError(path, "no space left")

    async def test() -> None:
        files = PlainAclFiles(str(folder), clock=ManualClock(), disk=FullDisk())
        files.load()
        before = files.acl
        with pytest.raises(ConfigError, match="nothing is changed, because it cannot be saved"):
            await files.update_account(PlainAccessConfig("account-2", "secret-of-2"))
        assert files.acl is before

    run(test)


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    async def test() -> None:
        real = tmp_path / "real.yml"
        real.write_text(text_of("account-1"))
        (tmp_path / "conf").mkdir()
        (tmp_path / "conf" / "plain_acl.yml").symlink_to(real)
        files = files_in(tmp_path / "conf")
        await files.update_account(PlainAccessConfig("account-2", "secret-of-2"))
        assert (tmp_path / "conf" / "plain_acl.yml").is_symlink()
        assert "account-2" in real.read_text()

    run(test)
