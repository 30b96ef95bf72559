"""L12: with 5.x's default inSyncReplicas=1 a SYNC_MASTER waits for no slave; ours always does."""

from __future__ import annotations

import pytest

from trocket.broker.settings.config import BrokerConfig
from trocket.broker.settings.config_checks import read_broker_config
from trocket.common.clock import SystemClock
from trocket.common.config import parse_properties
from trocket.store.config import BrokerRole, MessageStoreConfig
from trocket.store.writing.durability import SlaveAcks


def read(text: str) -> MessageStoreConfig:
    return read_with_warnings(text)[0]


def read_with_warnings(text: str) -> tuple[MessageStoreConfig, list[str]]:
    entries = parse_properties(text)
    _, store, warnings = read_broker_config(entries, BrokerConfig(), MessageStoreConfig())
    return store, warnings


def test_a_sync_master_with_apaches_default_starts_and_waits_for_a_slave_with_a_warning() -> None:
    store, warnings = read_with_warnings("brokerRole=SYNC_MASTER\ninSyncReplicas=1")
    assert [each for each in warnings if "inSyncReplicas=1: counts as 2" in each] != []
    assert SlaveAcks(store, SystemClock()).needed == 1


@pytest.mark.parametrize(
    "text",
    [
        "brokerRole=SYNC_MASTER",
        "brokerRole=SYNC_MASTER\ninSyncReplicas=2",
        "brokerRole=SYNC_MASTER\ninSyncReplicas=1\ninSyncReplicas=3",
        "brokerRole=ASYNC_MASTER\ninSyncReplicas=1",
    ],
)
def test_any_other_is_taken(text: str) -> None:
    assert read(text).broker_role in (BrokerRole.SYNC_MASTER, BrokerRole.ASYNC_MASTER)
