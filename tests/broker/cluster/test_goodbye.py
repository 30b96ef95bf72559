"""A broker that stops while its goodbye to a name server goes wrong."""

from __future__ import annotations

import pytest
import trio

from ...kit import embedded_broker


async def test_a_goodbye_that_fails_keeps_nothing_running(autojump_clock, monkeypatch):
    async def fails() -> None:
        raise RuntimeError("no goodbye")

    with trio.fail_after(60), pytest.RaisesGroup(RuntimeError, flatten_subgroups=True):
        async with embedded_broker() as broker:
            monkeypatch.setattr(broker.controller.registrar, "unregister_all", fails)
            disk = broker.controller.store.disk
    assert not disk.exists(f"{broker.controller.store.config.store_path_root_dir}/abort")
