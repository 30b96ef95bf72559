"""The shares of connections and groups in the places of waiting requests."""

from __future__ import annotations

from tests.broker.harness import FakeChannel, held_pull
from trocket.broker.settings.config import BrokerConfig
from trocket.broker.waiting.places import Places

LIMIT, COUNT_MAX, SIZE = "heldPullsMax", 8, 100


def test_a_share_is_free_again_when_its_requests_leave() -> None:
    config = BrokerConfig(held_pulls_per_connection_max=2, held_pulls_per_group_max=3)
    places = Places(config)
    channels = [FakeChannel() for _ in range(4)]

    def limit_for(number: int, group: str) -> str:
        """The limit that one more request would exceed; "": none."""
        refusal = places.refusal(channels[number], group, LIMIT, COUNT_MAX)
        return "" if refusal is None else refusal[0]

    pulls = [held_pull(channels[number]).pull for number in (0, 0, 1, 2)]
    for pull in pulls:
        assert limit_for(0, "G") == "", "half of the places are free"
        assert places.take(pull, "G" if pull is not pulls[3] else "other", SIZE)
    assert [limit_for(0, "other"), limit_for(3, "G"), limit_for(3, "other")] == [
        "heldPullsPerConnectionMax",
        "heldPullsPerGroupMax",
        "",
    ]
    assert places.take(held_pull(channels[3]).pull, "other", SIZE)
    places.give_back(pulls[0], "G", SIZE)
    assert [limit_for(0, "other"), limit_for(3, "G")] == ["", ""]
