"""Profiles: clusters by name, in a file of the user.

The file is `profiles.json` in `$XDG_CONFIG_HOME/trocket` (`~/.config/trocket`). Only its owner may
read it, because a URL may contain an account.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from ..common.whole_file import replacing

FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
"""A name has no colon, dot or slash, so it is never mistaken for a URL."""

_SECRET: Final = re.compile(r"(?<=://)[^/@]*(?=@)|(?<=[?&]security_token=)[^&]*")

VARIABLE: Final = "TROCKET_PROFILE"
"""The environment variable that names the profile to use."""


class ProfileError(Exception):
    """The profile does not exist, or the file cannot be used."""


class Profiles(msgspec.Struct, frozen=True, omit_defaults=True):
    """The file's content.

    Attributes:
      urls: by name.
      current: the profile for commands that name none; "": none.
    """

    urls: dict[str, str] = {}
    current: str = ""

    def url(self, name: str) -> str:
        """The URL of a profile. Raises: ProfileError: no profile has that name."""
        if name not in self.urls:
            known = ", ".join(sorted(self.urls)) or "none"
            raise ProfileError(f"there is no profile {name!r}; there are: {known}")
        return self.urls[name]

    def with_url(self, name: str, url: str) -> Profiles:
        """These and one more, or one with another URL. Raises: ProfileError: an illegal name."""
        if not NAME.fullmatch(name):
            raise ProfileError(f"{name!r} is not a name: use letters, digits, '-' and '_'")
        return Profiles({**self.urls, name: url}, self.current)

    def without(self, name: str) -> Profiles:
        """These less one. Raises: ProfileError: no profile has that name."""
        self.url(name)
        urls = {each: url for each, url in self.urls.items() if each != name}
        return Profiles(urls, "" if self.current == name else self.current)

    def using(self, name: str) -> Profiles:
        """These, with another current one. Raises: ProfileError: no profile has that name."""
        self.url(name)
        return Profiles(self.urls, name)


def path_of(environment: Mapping[str, str]) -> Path:
    folder = environment.get("XDG_CONFIG_HOME")
    return (Path(folder) if folder else Path.home() / ".config") / "trocket" / "profiles.json"


def load(path: Path) -> Profiles:
    """Read the file; without one there are no profiles.

    Raises: ProfileError: it cannot be read, or is not a file of profiles.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=Profiles)
    except FileNotFoundError:
        return Profiles()
    except (OSError, msgspec.DecodeError) as error:
        raise ProfileError(f"{path} cannot be read: {error}; correct or remove it") from error


def save(path: Path, profiles: Profiles) -> None:
    """Replace the file. Raises: ProfileError: it cannot be written."""
    try:
        path.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        with replacing(path, mode=FILE_MODE) as file:
            file.write(msgspec.json.format(msgspec.json.encode(profiles)) + b"\n")
    except OSError as error:
        raise ProfileError(f"{path} cannot be written: {error.strerror}") from error


def without_secrets(url: str) -> str:
    """A URL whose account and token are left out, to be shown."""
    return _SECRET.sub("***", url)


def chosen_url(given: str | None, environment: Mapping[str, str]) -> str | None:
    """The URL that a command should use.

    Args:
      given: a URL or a profile's name from --url or ROCKETMQ_URL; None: neither is set.
      environment: TROCKET_PROFILE names the profile if nothing is given.

    Returns: None: nothing is given, and no profile is in use.
    Raises: ProfileError: there is no such profile, or the file cannot be read.
    """
    if given is not None:
        return load(path_of(environment)).url(given) if NAME.fullmatch(given) else given
    profiles = load(path_of(environment))
    name = environment.get(VARIABLE) or profiles.current
    return profiles.url(name) if name else None
