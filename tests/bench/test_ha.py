"""The replication benchmark: its small cases on small stores, and how it sets up brokers."""

from __future__ import annotations

import pytest
import typer
from typer.testing import CliRunner

from trocket.bench import ha
from trocket.bench.ha_sends import ASYNC, NO_SLAVE, SYNC, Figures, master_keys


def test_both_peers_are_configured_to_wait_for_one_slave():
    assert master_keys("trocket", SYNC) == {"brokerRole": "SYNC_MASTER"}
    assert master_keys("apache-5.5.0", SYNC) == {"brokerRole": "SYNC_MASTER", "inSyncReplicas": 2}
    assert master_keys("trocket", ASYNC) == master_keys("apache-5.5.0", NO_SLAVE) == {}


def test_ours_stands_over_the_peer_of_the_same_mode(tmp_path, monkeypatch):
    figures = [
        Figures("trocket", SYNC, "c", 300.0, 1.0, 2.0, 3.0),
        Figures("apache-5.5.0", SYNC, "c", 100.0, 1.0, 2.0, 3.0),
        Figures("apache-5.5.0", ASYNC, "c", 1.0, 1.0, 2.0, 3.0),
    ]
    monkeypatch.setattr(ha, "measure_all", lambda *_args, **_kwargs: figures)
    outcomes = ha.sends_cases(tmp_path, "trocket,apache-5.5.0", 1, 1.0, 1.0)
    assert [one.ratio for one in outcomes] == [3.0, None, None]


@pytest.mark.slow
def test_a_slave_in_its_own_process_catches_up(tmp_path):
    outcome = ha.catch_up_case(tmp_path, 1024, 0.002)
    assert outcome.ratio == pytest.approx(outcome.value / ha.CATCH_UP_GOAL)


@pytest.mark.slow
def test_an_unknown_case_is_refused():
    app = typer.Typer()
    app.command()(ha.main)
    done = CliRunner().invoke(app, ["--case", "nothing"])
    assert done.exit_code == 2
    assert "catch-up, brokers, sends" in done.output
