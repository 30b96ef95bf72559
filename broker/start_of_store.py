"""A broker's start on a data folder, without its ports and services: for the tools of the store."""

from __future__ import annotations

from ..common.clock import SystemClock
from ..disk.os_disk import Disk
from ..store.config import MessageStoreConfig
from ..store.message_store import MessageStore
from .controller import BrokerController
from .settings.config import BrokerConfig


def open_as_broker(config: MessageStoreConfig, disk: Disk) -> MessageStore:
    """Load store and tables as a broker's start does, and correct what it corrects.

    The broker's own settings are the default ones.

    Returns: the loaded store; the caller closes it.

    Raises:
      StoreError: a broker would not start.
    """
    broker = BrokerController(BrokerConfig(), config, clock=SystemClock(), disk=disk, listeners=[])
    broker.load()
    return broker.store
