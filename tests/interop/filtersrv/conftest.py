"""Fixtures of the tests with real filter servers: JVMs and sites, started once for a module."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from .java_consumers import JavaConsumers
from .processes import watched_processes
from .sites import OpenSite, Site


@pytest.fixture(scope="module")
def java_consumers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, JavaConsumers]]:
    """The official clients by version."""
    folder = tmp_path_factory.mktemp("java")
    made: dict[str, JavaConsumers] = {}
    try:
        for version in ("4.2.0", "4.9.7", "5.5.0"):
            made[version] = JavaConsumers(version, folder / version)
        yield made
    finally:
        for consumers in made.values():
            consumers.close()


@pytest.fixture
def open_site(
    tmp_path_factory: pytest.TempPathFactory, java_consumers: object
) -> Iterator[Callable[[OpenSite], Site]]:
    """Opens one site; it ends with the test, and no process of it may be left then."""
    opened: list[Site] = []

    def open_one(made_by: OpenSite) -> Site:
        opened.append(made_by(tmp_path_factory.mktemp("site")))
        opened[-1].start()
        return opened[-1]

    with watched_processes():
        try:
            yield open_one
        finally:
            for site in opened:
                site.close()


@pytest.fixture(scope="module")
def shared_site(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    java_consumers: object,
) -> Iterator[Site]:
    """The site that the parameter makes, for all tests of the module that ask for it."""
    made_by: OpenSite = request.param
    with watched_processes():
        site = made_by(tmp_path_factory.mktemp("site"))
        try:
            site.start()
            yield site
        finally:
            site.close()
