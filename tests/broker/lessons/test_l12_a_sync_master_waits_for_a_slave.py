"""L12: with 5.x's default inSyncReplicas=1 a SYNC_MASTER waits for no slave; ours always does."""

from __future__ import annotations

import pytest

from trocket.broker.config import BrokerConfig, read_broker_config
from trocket.common.config import ConfigError, parse_properties
from trocket.store.config import BrokerRole, MessageStoreConfig


def read(text: str) -> MessageStoreConfig:
    entries = parse_properties(text)
    return read_broker_config(entries, BrokerConfig(), MessageStoreConfig())[1]


def test_a_file_with_which_a_sync_master_would_wait_for_no_slave_is_refused() -> None:
    with pytest.raises(ConfigError, match="line 2: inSyncReplicas=1 with brokerRole=SYNC_MASTER"):
        read("brokerRole=SYNC_MASTER\ninSyncReplicas=1")


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
