"""Health of a broker, by its HTTP port: `/health/ready`, and a number of `/metrics`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Final

import anyio
import anyio.to_thread

from ...common.texts import one_line
from .server_checks import health_address

PAGE_SIZE_MAX: Final = 16 * 1024 * 1024
"""Bytes that are read of a page of metrics."""


async def health(
    config: Mapping[str, str], address: str, timeout_s: Callable[[], float]
) -> tuple[tuple[str, ...] | None, float | None]:
    """What a broker's HTTP port says: what is missing, and the event loop's lag.

    Args:
      config: its settings.
      address: the `host:port` that it advertises.
      timeout_s: returns the seconds for the next page; 0: there is no time left.

    Returns: None, None: it has no such port, or nothing that answers there.
    """
    where = health_address(config, address)
    if not where:
        return None, None
    base = f"http://{where}"
    ready = _missing(await _get(f"{base}/health/ready", timeout_s()))
    if ready is None:
        return None, None
    page = await _get(f"{base}/metrics", timeout_s())
    return ready, loop_lag_of(page.decode("utf-8", "replace"))


async def _get(url: str, timeout_s: float) -> bytes:
    """The body of a page, whatever its status; empty if there is none."""
    # The limit of a socket counts from its last byte, this one for the whole page.
    with anyio.move_on_after(timeout_s):
        return await anyio.to_thread.run_sync(
            _read, url, max(timeout_s, 0.001), abandon_on_cancel=True
        )
    return b""


def _read(url: str, timeout_s: float) -> bytes:
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.request import ProxyHandler, build_opener

    opener = build_opener(ProxyHandler({}))
    try:
        with opener.open(url, timeout=timeout_s) as page:
            return bytes(page.read(PAGE_SIZE_MAX))
    except HTTPError as error:
        try:
            return bytes(error.read(PAGE_SIZE_MAX))
        except (OSError, HTTPException):
            return b""
    except (OSError, HTTPException, ValueError):
        return b""


def _missing(body: bytes) -> tuple[str, ...] | None:
    """What is missing by the JSON of `/health/ready`; None: it is no such page."""
    try:
        tree = json.loads(body)
    except ValueError:
        return None
    missing = tree.get("missing") if isinstance(tree, dict) else None
    if not isinstance(missing, list):
        return None
    return tuple(one_line(each) for each in missing)


_LAG_BUCKET: Final = re.compile(
    r'^trocket_event_loop_lag_seconds_bucket\{[^}]*\ble="([^"]+)"[^}]*\} (\S+)$', re.MULTILINE
)


def loop_lag_of(page: str) -> float | None:
    """The 99th percentile of the event loop's lag in a page of metrics: the end of its bucket.

    Returns: seconds; infinite: more than the last bucket's end; None: it is not there.
    """
    try:
        buckets = [(float(end), float(count)) for end, count in _LAG_BUCKET.findall(page)]
    except ValueError:
        return None
    if not buckets or buckets[-1][1] <= 0:
        return None
    total = buckets[-1][1]
    return next((end for end, count in buckets if count >= 0.99 * total), None)
