"""The project's version: the one line that states it, the files that repeat it, and git's tags.

`__version__` in `__init__.py` is the one that counts: wheels and sdist take it, so a checkout
without tags, an sdist without git and a copy of the files all have it. A tag makes it a release:

    python deploy/version.py                print the version of what `make release` builds of HEAD
    python deploy/version.py set 0.2.0      state another one, in all files
    python deploy/version.py stamp TREE V   state V in the `__init__.py` of a tree alone
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
STATED_IN: Final = "__init__.py"
STATED: Final = re.compile(r'^(__version__ = ")([^"]+)(?=")', re.MULTILINE)
RELEASE: Final = re.compile(r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?")
"""A version that may be released: of the versions of PEP 440 those that SemVer has, too."""

_KIT: Final = r"(<artifactId>trocket-junit</artifactId>\s*<version>)([^<]+)"
_TAG: Final = r"(\bnewTag: )(\S+)"
_IMAGE: Final = r"(--build-arg VERSION=)(\S+)"
_PRINTED: Final = r"(\btrocket )(\d\S*)(?=, process)"
REPEATED_IN: Final = {
    "README.md": (_PRINTED, r"(\btrocket(?:_client)?-)(\d[^-]*)(?=-\w+-\w+-\w+\.whl)"),
    "deploy/container/Containerfile": (_IMAGE,),
    "deploy/kubernetes/kustomization.yaml": (_TAG,),
    "docs/deploy.md": (_IMAGE, _TAG),
    "docs/operations.md": (_PRINTED, r'("ready": true, .*"version": ")([^"]+)'),
    "docs/test_clock.md": (r'(\{"trocket": ")([^"]+)',),
    "docs/tutorials/testing_java.md": (_KIT,),
    "examples/tests_in_java/pom.xml": (_KIT,),
    "testkits/java/README.md": (r"(\btrocket:trocket-junit:)(\d[^`\s]*)",),
    "testkits/java/pom.xml": (_KIT,),
}
"""Files that repeat it, each with what finds it there: the second group is the version.

The kit for Go has none in a file: Go's tools take it from the tag.
"""

HASH_LENGTH: Final = 12
"""Digits of a commit in a version; git's own choice grows with the repository."""


class VersionError(Exception):
    """The files and the tags do not agree, or git does not answer."""


def stated_version(tree: Path = ROOT) -> str:
    """What `__init__.py` says.

    Raises:
      VersionError: it says nothing.
    """
    found = STATED.search((tree / STATED_IN).read_text(encoding="utf-8"))
    if found is None:
        raise VersionError(f"{STATED_IN} has no line __version__ = ...")
    return found[2]


def disagreements(tree: Path = ROOT, *, is_release: bool = False) -> list[str]:
    """Places that state another version than `__init__.py`, each a line; none: all agree.

    Args:
      is_release: whether the heading of CHANGELOG.md has to have a date.
    """
    version = stated_version(tree)
    wrong = []
    for name, patterns in REPEATED_IN.items():
        text = (tree / name).read_text(encoding="utf-8")
        for pattern in patterns:
            said = {found[2] for found in re.finditer(pattern, text)}
            if said != {version}:
                wrong.append(f"{name} says {', '.join(sorted(said)) or 'nothing'}")
    log = (tree / "CHANGELOG.md").read_text(encoding="utf-8")
    heading = next((line for line in log.splitlines() if line.startswith("## ")), "none")
    suffix = r"- \d{4}-\d\d-\d\d" if is_release else r"(?:- \d{4}-\d\d-\d\d|\(unreleased\))"
    if not re.fullmatch(rf"## {re.escape(version)} {suffix}", heading):
        wrong.append(f"the first heading of CHANGELOG.md is {heading}")
    return wrong


def built_version(tree: Path = ROOT) -> str:
    """The version of what is built of HEAD: that of its tag `vX.Y.Z`, or `X.Y.Z.devN+gHASH`.

    N counts the commits, so that a later one is newer; no package index takes such a version.

    Raises:
      VersionError: a tag or a file says another one, or the clone is shallow.
    """
    version = stated_version(tree)
    tags = _git(tree, "tag", "--points-at", "HEAD", "--list", "v[0-9]*").split()
    if tags and tags != [f"v{version}"]:
        raise VersionError(f"HEAD has the tags {' '.join(tags)}, and {STATED_IN} says {version}")
    if wrong := disagreements(tree, is_release=bool(tags)):
        raise VersionError("\n".join([f"{STATED_IN} says {version}, but:", *wrong]))
    if tags:
        return version
    if _git(tree, "tag", "--list", f"v{version}"):
        raise VersionError(
            f"{version} is another commit's: python deploy/version.py set NEXT, and a heading for"
            " it in CHANGELOG.md"
        )
    if _git(tree, "rev-parse", "--is-shallow-repository") == "true":
        raise VersionError("the clone is shallow, so no one can count its commits: fetch them all")
    count = _git(tree, "rev-list", "--count", "HEAD")
    return f"{version}.dev{count}+g{_git(tree, 'rev-parse', f'--short={HASH_LENGTH}', 'HEAD')}"


def _git(tree: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(tree), *words], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise VersionError(f"git {words[0]}: {done.stderr.strip()}")
    return done.stdout.strip()


def stamp(tree: Path, version: str) -> None:
    """State a version in the `__init__.py` of a tree, from which its builds take it."""
    _rewrite(tree / STATED_IN, STATED, version)


def state(tree: Path, version: str) -> None:
    """State a version in all files of a tree; headings of CHANGELOG.md are written by hand.

    Raises:
      VersionError: it is none that can be released.
    """
    if not RELEASE.fullmatch(version):
        raise VersionError(f"{version} is no version such as 0.2.0 or 0.2.0rc1")
    stamp(tree, version)
    for name, patterns in REPEATED_IN.items():
        for pattern in patterns:
            _rewrite(tree / name, re.compile(pattern), version)


def _rewrite(path: Path, pattern: re.Pattern[str], version: str) -> None:
    text = path.read_text(encoding="utf-8")
    path.write_text(pattern.sub(lambda found: found[1] + version, text), encoding="utf-8")


def main(words: list[str]) -> int:
    """Run a command; the status of the process."""
    try:
        match words:
            case []:
                print(built_version())
            case ["set", version]:
                state(ROOT, version)
            case ["stamp", tree, version]:
                stamp(Path(tree), version)
            case _:
                print(__doc__, file=sys.stderr)
                return 2
    except VersionError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
