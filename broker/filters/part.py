"""Filters: the SQL92 expressions of consumers, and the bit maps computed for them."""

from __future__ import annotations

import logging
from functools import partial
from typing import Final

import trio

from ...common.supervision import Supervisor
from ...disk.errors import CorruptRecordError
from ..part import AtCut, Foundation, Part, SavedFile
from ..tables.config_text import CONSUMER_FILTERS
from ..tables.part import Tables
from .bloom import BloomFilter
from .consumer_filter_manager import ConsumerFilterManager, warm_up
from .filter_bit_maps import FilterBitMaps

logger = logging.getLogger(__name__)

SAVE_INTERVAL_S: Final = 10.0
"""Between two saves of changed filters. RocketMQ: BrokerController.initialize."""


class Filters(Part):
    """The filters of connected consumers.

    Attributes:
      table: the filters by topic and group, whatever enablePropertyFilter says.
      bit_maps: which filters a stored message matches.
    """

    def __init__(self, foundation: Foundation, tables: Tables) -> None:
        self._config = config = foundation.config
        self._files = foundation.files
        self._store = store = foundation.store
        self.table = ConsumerFilterManager(
            clock=foundation.seams.clock,
            save=foundation.files.save,
            newest_ms=lambda: store.store_time_ms,
            bloom=BloomFilter.create(
                config.max_error_rate_of_bloom_filter, config.expect_consumer_num_use_filter
            ),
            kept_dead_ms=config.filter_data_clean_time_span,
        )
        self.bit_maps = FilterBitMaps(self.table, monotonic_s=foundation.seams.clock.monotonic_s)
        if config.enable_property_filter and config.enable_calc_filter_bit_map:
            store.queue_store.bitmap_of = self.bit_maps.bit_map_of
        self.saved = (
            SavedFile(
                file=self.table.file,
                at_cut=AtCut.KEPT,
                interval_s=lambda: SAVE_INTERVAL_S,
                before_save=self.table.clean,
            ),
        )
        foundation.live.subscribe(self._settings_changed, "filterDataCleanTimeSpan")

    @property
    def used(self) -> ConsumerFilterManager | None:
        """The table; None: enablePropertyFilter is false."""
        return self.table if self._config.enable_property_filter else None

    def load_tables(self) -> None:
        """See `Part`."""
        if not self._config.enable_property_filter:
            return
        warm_up()
        try:
            self._files.load(CONSUMER_FILTERS, self.table.decode)
        except CorruptRecordError as error:  # the file only saves work, so the broker starts
            logger.error(
                "%(error)s. It is replaced; consumers register their expressions again",
                {"error": error},
            )
            self.table.file.is_dirty = True  # so that it is replaced

    def load(self, *, was_killed: bool) -> None:
        """See `Part`."""
        if was_killed:
            self.table.reset_birth_times()

    async def start(self, services: Supervisor) -> None:
        """See `Part`."""
        is_master = not self._store.is_slave
        if is_master and not self._config.enable_property_filter and self._store.disk.threaded:
            # Pops may filter all the same; the start does not wait for the parser. A simulated
            # broker has no threads, and reads it when it is needed.
            in_thread = partial(trio.to_thread.run_sync, abandon_on_cancel=True)
            services.start_soon("the loading of the parser of SQL92", in_thread, warm_up)

    def _settings_changed(self) -> None:
        self.table.kept_dead_ms = self._config.filter_data_clean_time_span
