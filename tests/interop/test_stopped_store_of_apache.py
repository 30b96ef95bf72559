"""`trocket console PATH` on stores of Apache's brokers, killed and stopped: the same pages."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import pytest

from tests.console.running import Browser, logged_in, running_console
from tests.kit.stopped_stores import CONFIG, differences, shown_pages, stamps, stock
from tests.kit.waiting import wait_until
from trocket.interop.apache import ApacheCluster
from trocket.interop.maven import missing_tool
from trocket.interop.process import PeerError

pytestmark = [pytest.mark.interop, pytest.mark.slow]

VERSIONS = ["5.5.0", pytest.param("4.9.7", marks=pytest.mark.matrix)]
TIMEOUT_S = 120
SAID_BY_4_ONLY = re.compile(
    r"\.pulled: 0 became \d+"
    r"|\.copy\.committed: 0 became None"
    r"|\.withoutPops: \['broker-a'\] became \[\]"
)
"""Brokers of 4.x do not know what was pulled, say 0 for an offset that is none, and pop nothing."""
KEYS = {**CONFIG, "mappedFileSizeCommitLog": 64 << 20, "waitTimeMillsInSendQueue": 10_000}


@pytest.fixture(scope="module", params=VERSIONS)
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ApacheCluster]:
    """A running cluster with something of everything."""
    reason = missing_tool()
    if reason is not None:
        pytest.fail(reason)
    version = request.param
    cluster = ApacheCluster(version, tmp_path_factory.mktemp(version), broker_keys=KEYS)
    try:
        cluster.start()
        anyio.run(lambda: stock(cluster.namesrv_address, has_pops=version[0] == "5"))
        yield cluster
    finally:
        cluster.close()


def command(cluster: ApacheCluster, *more: str) -> list[str]:
    """The command line of a console of the cluster's store."""
    conf = cluster.folder / "conf" / "broker.conf"
    path = str(cluster.folder / "store")
    line = [sys.executable, "-m", "trocket.cli.main", "console", "--port", "0", path]
    return [*line, "-c", str(conf), *more]


@contextmanager
def console(cluster: ApacheCluster) -> Iterator[Browser]:
    """A browser that is logged in to a console of the cluster's store, in another process."""
    process = subprocess.Popen(
        command(cluster), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        found = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/login\?token=(\S+)\n", line)
        assert found is not None, line + process.stdout.read()
        browser = Browser(int(found[1]))
        assert browser.request("GET", f"/login?token={found[2]}").status == 303
        yield browser
    finally:
        process.send_signal(signal.SIGTERM)
        output = process.communicate(timeout=TIMEOUT_S)[0]
    assert (process.returncode, output) == (0, "")


def running_pages(cluster: ApacheCluster) -> dict[str, Any]:
    """What a console of the running cluster shows, once all offsets are in their file."""
    with running_console(cluster.namesrv_address) as (found, browser):
        pages = shown_pages(logged_in(found, browser).tree)
    path = cluster.folder / "store" / "config" / "consumerOffset.json"
    shown = {
        (f"{queue['topic']}@{page['group']}", str(queue["queueId"])): queue["committed"]
        for address, page in pages.items()
        if address.startswith("group&")
        for queue in page["queues"]
        if queue["committed"] > 0
    }

    def are_saved() -> bool:
        try:
            # Its keys are numbers without quotes, as fastjson writes them.
            text = re.sub(r"([{,])\s*(\d+)\s*:", r'\1"\2":', path.read_text())
            table = json.loads(text)["offsetTable"]
        except (FileNotFoundError, json.JSONDecodeError):
            return False  # the broker has not saved them yet, or does so now
        return all(table.get(key, {}).get(queue) == at for (key, queue), at in shown.items())

    wait_until(are_saved, "the offsets in their file")
    return pages


def check_store(cluster: ApacheCluster, pages: dict[str, Any]) -> None:
    """Compare the pages of the stopped store with those before."""
    folder = cluster.folder / "store"
    before = stamps(folder)
    with console(cluster) as browser:
        shown = shown_pages(browser.tree)
    assert stamps(folder) == before
    found = list(differences(pages, shown))
    if cluster.label.startswith("apache-4"):
        found = [each for each in found if not SAID_BY_4_ONLY.search(each)]
    assert found == []


def test_a_stopped_store_has_the_pages_of_before_and_one_program_at_a_time(
    cluster: ApacheCluster,
) -> None:
    refused = subprocess.run(command(cluster), capture_output=True, text=True, timeout=TIMEOUT_S)
    assert refused.returncode == 1
    assert "another process is using this data folder" in refused.stderr
    pages = running_pages(cluster)
    cluster.kill_broker()
    check_store(cluster, pages)
    cluster.start_broker()
    pages = running_pages(cluster)
    cluster.stop_broker()
    check_store(cluster, pages)
    with console(cluster) as browser, pytest.raises(PeerError):
        cluster.start_broker()
    assert browser.port
    cluster.start_broker()
