"""What is inside compressed bodies, of good and of hostile ones."""

from __future__ import annotations

import gzip
import os
import time
import tracemalloc
import zlib
from collections.abc import Callable

import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from trocket.operations import unpacking
from trocket.operations.unpacking import (
    Packing,
    Unpacked,
    Unreadable,
    as_sent,
    packing_of,
    unpacked,
)
from trocket.remoting.body_compression import CompressionType

TEXT = b'{"order": 1}' * 50
PACK: dict[Packing, Callable[[bytes], bytes]] = {
    Packing.ZLIB: zlib.compress,
    Packing.GZIP: gzip.compress,
    Packing.LZ4: lz4.frame.compress,
    Packing.ZSTD: zstandard.ZstdCompressor().compress,
}
OF_FLAG = {
    CompressionType.ZLIB: Packing.ZLIB,
    CompressionType.LZ4: Packing.LZ4,
    CompressionType.ZSTD: Packing.ZSTD,
}


@pytest.mark.parametrize("packing", Packing)
def test_what_a_program_compressed_is_read(packing: Packing) -> None:
    packed = PACK[packing](TEXT)
    assert packing_of(packed) is packing
    assert unpacked(packed) == Unpacked((packing,), TEXT)
    assert unpacked(PACK[packing](b"")).content == b""


@pytest.mark.parametrize("kind", CompressionType)
def test_what_a_client_compressed_is_read_and_what_is_inside_of_that(kind: CompressionType) -> None:
    packed = PACK[OF_FLAG[kind]](gzip.compress(TEXT))
    assert unpacked(packed, kind.sys_flag) == Unpacked((OF_FLAG[kind], Packing.GZIP), TEXT)


def test_what_is_downloaded_is_what_the_program_sent() -> None:
    body = gzip.compress(TEXT)
    flag = CompressionType.ZLIB.sys_flag
    assert as_sent(body, 0) == Unpacked((), body)
    assert as_sent(zlib.compress(body), flag).content == body
    assert as_sent(body, flag).failure is Unreadable.DAMAGED
    large = bytes(unpacking.INSIDE_SIZE_MAX + 1)
    assert as_sent(zlib.compress(large), flag).content == large


def test_no_more_layers_are_undone_than_the_limit() -> None:
    body = TEXT
    for _ in range(5):
        body = gzip.compress(body)
    found = unpacked(body)
    assert found.layers == (Packing.GZIP,) * 3
    assert packing_of(found.content) is Packing.GZIP


@pytest.mark.parametrize("body", [b"", b"x", b"x\x9c", b"x\x9cyz", b"HELLO", b"\x1f\x8b\x08"])
def test_what_only_looks_compressed_is_its_own_content(body: bytes) -> None:
    assert unpacked(body) == Unpacked((), body)


def test_parts_of_gzip_that_follow_each_other_are_one_content() -> None:
    assert unpacked(gzip.compress(b"a") + gzip.compress(b"b")).content == b"ab"
    assert unpacked(PACK[Packing.ZSTD](b"a") + PACK[Packing.ZSTD](b"b")).content == b"ab"
    assert unpacked(PACK[Packing.LZ4](b"a") + PACK[Packing.LZ4](b"b")).content == b"ab"


@pytest.mark.parametrize("packing", Packing)
def test_a_body_without_its_end_gives_what_was_read(packing: Packing) -> None:
    noise = os.urandom(600_000)
    found = unpacked(PACK[packing](noise)[:-9])
    assert (found.layers, found.failure) == ((packing,), Unreadable.CUT_SHORT)
    assert noise.startswith(found.content)
    assert len(found.content) > 300_000


def test_a_flagged_body_that_cannot_be_read_says_why() -> None:
    for kind in CompressionType:
        found = unpacked(b"no compressed body", kind.sys_flag)
        assert (found.layers, found.failure) == ((OF_FLAG[kind],), Unreadable.DAMAGED)
        assert found.detail
    found = unpacked(b"x", CompressionType.ZLIB.sys_flag | 7 << 8)
    assert (found.failure, found.content) == (Unreadable.UNKNOWN_TYPE, b"x")
    found = unpacked(zlib.compress(TEXT) + b"more")
    assert (found.failure, found.content) == (Unreadable.DAMAGED, TEXT)
    assert unpacked(b"", CompressionType.ZLIB.sys_flag) == Unpacked((), b"")


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_module(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(unpacking, "import_module", no_module)
    found = unpacked(PACK[Packing.LZ4](TEXT))
    assert (found.failure, found.detail) == (Unreadable.NO_PACKAGE, "lz4")


def of_zlib(size_gib: int, wbits: int) -> bytes:
    """A stream that grows to so much, without its end: one block again and again."""
    packer = zlib.compressobj(9, wbits=wbits)
    head = packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(bytes(4 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    return head + block * (size_gib * 256)


@pytest.fixture(scope="module")
def bombs() -> dict[str, bytes]:
    """Bodies that grow to GiB."""
    zstd_frame = PACK[Packing.ZSTD](bytes(100 << 20))
    return {
        "zlib": of_zlib(1, 15),
        "zlib of 10 GiB": of_zlib(10, 15),
        "gzip": of_zlib(1, 31),
        "lz4": lz4.frame.compress(bytes(100 << 20)) * 8,
        "zstd": zstd_frame * 100,
        "gzip in gzip": gzip.compress(of_zlib(1, 31)),
        "many members": gzip.compress(b"") * 100_000,
        "many frames": PACK[Packing.ZSTD](b"") * 300_000,
    }


LIMIT_S = 2.0
MEMORY_MAX = 64 << 20


@pytest.mark.slow
def test_a_body_that_grows_without_end_takes_little_memory_and_time(
    bombs: dict[str, bytes], traced: Callable[[], int]
) -> None:
    for name, body in bombs.items():
        begin_s = time.process_time()
        tracemalloc.reset_peak()
        held = traced()
        found = unpacked(body)
        assert time.process_time() - begin_s < LIMIT_S, name
        assert tracemalloc.get_traced_memory()[1] - held < MEMORY_MAX, name
        if "many" in name:
            assert found.failure is Unreadable.MANY_PARTS, name
        else:
            assert found.failure is Unreadable.TOO_LARGE, name
            assert len(found.content) == unpacking.KEPT_SIZE


@given(st.binary(max_size=200), st.sampled_from([0, 1, 0x101, 0x201, 0x301, 0x401, 0x701]))
def test_any_bytes_are_read_or_refused(body: bytes, sys_flag: int) -> None:
    unpacked(body, sys_flag)


@given(st.sampled_from(list(Packing)), st.data())
def test_any_damage_is_a_failure_or_another_content(packing: Packing, data: st.DataObject) -> None:
    packed = bytearray(PACK[packing](TEXT))
    at = data.draw(st.integers(0, len(packed) - 1))
    packed[at] ^= data.draw(st.integers(1, 255))
    unpacked(bytes(packed))
