"""One version: stated once, repeated in the kits and documents, and a release by its tag alone."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import trocket
from trocket.deploy.version import (
    REPEATED_IN,
    ROOT,
    STATED_IN,
    VersionError,
    built_version,
    disagreements,
    main,
    stamp,
    state,
    stated_version,
)

WHO = {
    f"GIT_{who}_{what}": f"{what.lower()}@here"
    for who in ("AUTHOR", "COMMITTER")
    for what in ("NAME", "EMAIL")
}
ALONE = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that state the version, in a repository with two commits."""
    tree = tmp_path_factory.mktemp("made")
    for name in (STATED_IN, "CHANGELOG.md", *REPEATED_IN):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tree / name)
    state(tree, "0.7.0")
    head(tree, "## 0.7.0 (unreleased)")
    git(tree, "init", "--quiet", "--template=")
    git(tree, "add", ".")
    for _ in range(2):
        git(tree, "commit", "--quiet", "--allow-empty", "--message", "x")
    return tree


@pytest.fixture
def tree(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "tree"))


def git(tree: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-C", tree, *words],
        env=os.environ | WHO | ALONE,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout.strip()


def head(tree: Path, heading: str) -> None:
    """Give CHANGELOG.md another first heading of a version."""
    path = tree / "CHANGELOG.md"
    before, _, after = path.read_text(encoding="utf-8").partition("\n## ")
    after = after.partition("\n")[2]
    path.write_text(f"{before}\n{heading}\n{after}", encoding="utf-8")


def commit(tree: Path, *tags: str) -> None:
    git(tree, "commit", "--quiet", "--all", "--allow-empty", "--message", "y")
    for tag in tags:
        git(tree, "tag", tag)


def test_every_file_that_states_the_version_states_the_same() -> None:
    assert stated_version() == trocket.__version__
    assert disagreements() == []


def test_without_a_tag_the_version_is_one_before_the_release_and_names_the_commit(
    tree: Path,
) -> None:
    assert built_version(tree) == f"0.7.0.dev2+g{git(tree, 'rev-parse', 'HEAD')[:12]}"


def test_with_its_tag_the_version_is_that_of_the_release(tree: Path) -> None:
    head(tree, "## 0.7.0 - 2027-01-31")
    commit(tree, "v0.7.0", "testkits/go/v0.7.0")
    assert built_version(tree) == "0.7.0"


def test_a_tag_of_another_version_is_refused(tree: Path) -> None:
    head(tree, "## 0.7.0 - 2027-01-31")
    commit(tree, "v0.8.0")
    with pytest.raises(VersionError, match=r"the tags v0\.8\.0, and __init__\.py says 0\.7\.0"):
        built_version(tree)


def test_a_release_without_a_date_is_refused(tree: Path) -> None:
    commit(tree, "v0.7.0")
    with pytest.raises(VersionError, match=r"CHANGELOG\.md is ## 0\.7\.0 \(unreleased\)"):
        built_version(tree)


def test_a_tag_of_a_commit_whose_files_disagree_is_refused(tree: Path) -> None:
    stamp(tree, "0.7.1")
    head(tree, "## 0.7.1 - 2027-01-31")
    commit(tree, "v0.7.1")
    with pytest.raises(VersionError, match=r"says 0\.7\.1, but:\nREADME\.md says 0\.7\.0\n"):
        built_version(tree)


def test_after_a_release_the_next_version_has_to_be_stated(tree: Path) -> None:
    head(tree, "## 0.7.0 - 2027-01-31")
    commit(tree, "v0.7.0")
    commit(tree)
    with pytest.raises(VersionError, match=r"0\.7\.0 is another commit's"):
        built_version(tree)
    state(tree, "0.8.0rc1")
    head(tree, "## 0.8.0rc1 (unreleased)")
    assert built_version(tree).startswith("0.8.0rc1.dev4+g")


@pytest.mark.parametrize("name", REPEATED_IN)
def test_a_file_that_states_another_version_is_named(tree: Path, name: str) -> None:
    text = (tree / name).read_text(encoding="utf-8")
    (tree / name).write_text(text.replace("0.7.0", "0.6.0", 1), encoding="utf-8")
    assert [each for each in disagreements(tree) if each.startswith(f"{name} says 0.6.0")]
    (tree / name).write_text(text.replace("0.7.0", "version"), encoding="utf-8")
    assert [each for each in disagreements(tree) if each.startswith(f"{name} says ")]


def test_a_shallow_clone_is_refused_as_its_commits_cannot_be_counted(
    tree: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    clone = tmp_path_factory.mktemp("shallow")
    git(clone, "clone", "--quiet", "--depth", "1", tree.as_uri(), ".")
    with pytest.raises(VersionError, match="the clone is shallow"):
        built_version(clone)


def test_where_git_does_not_answer_the_error_says_why(tmp_path: Path, tree: Path) -> None:
    shutil.rmtree(tree / ".git")
    with pytest.raises(VersionError, match=r"git tag: .*not a git repository"):
        built_version(tree)
    assert stated_version(tree) == "0.7.0"


def test_a_build_is_stamped_in_its_own_tree_and_nowhere_else(tree: Path) -> None:
    version = built_version(tree)
    stamp(tree, version)
    assert stated_version(tree) == version
    assert git(tree, "status", "--porcelain") == f"M {STATED_IN}"


@pytest.mark.parametrize("version", ["1", "v0.8.0", "0.8.0.dev1", "0.8", "0.8.0+local"])
def test_what_cannot_be_released_cannot_be_stated(tree: Path, version: str) -> None:
    with pytest.raises(VersionError, match="is no version such as"):
        state(tree, version)
    assert stated_version(tree) == "0.7.0"


def test_a_wrong_command_prints_those_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["raise"]) == 2
    assert "deploy/version.py set 0.2.0" in capsys.readouterr().err
