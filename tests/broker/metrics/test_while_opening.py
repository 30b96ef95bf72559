"""Health while the store is being opened, which blocks the event loop."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

import pytest

from trocket.broker.metrics import while_opening
from trocket.broker.metrics.while_opening import answered_while_opening
from trocket.remoting.server import open_listener


def test_a_probe_learns_that_the_process_lives_and_is_not_ready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(while_opening, "PATIENCE_S", 0.0)
    with open_listener("127.0.0.1", 0) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with answered_while_opening(listener):
            with urllib.request.urlopen(f"{url}/health/live", timeout=10) as answer:
                assert json.load(answer) == {"status": "live"}
            for path in ("/health/ready", "/metrics"):
                with pytest.raises(urllib.error.HTTPError) as caught:
                    urllib.request.urlopen(url + path, timeout=10)
                with caught.value as refusal:
                    assert refusal.code == 503
                    assert "is being opened" in json.load(refusal)["missing"][0]
        assert listener.fileno() >= 0


def test_a_store_that_opens_at_once_needs_no_answers() -> None:
    with open_listener("127.0.0.1", 0) as listener, answered_while_opening(listener):
        pass
