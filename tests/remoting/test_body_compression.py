"""remoting/body_compression.py."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trocket.remoting.body_compression import (
    CompressionType,
    compress,
    compression_type,
    decompress,
)
from trocket.remoting.errors import MissingPackageError, RemoteProtocolError

KINDS = pytest.mark.parametrize("kind", list(CompressionType), ids=lambda kind: kind.name)


def test_the_flags_are_those_seen_on_the_wire():
    assert CompressionType.LZ4.sys_flag == 0x101
    assert CompressionType.ZSTD.sys_flag == 0x201
    assert CompressionType.ZLIB.sys_flag == 0x301


def test_a_flag_without_a_type_is_zlib():
    assert compression_type(0x1) == CompressionType.ZLIB
    assert decompress(compress(b"abc", CompressionType.ZLIB), 0x1) == b"abc"


@pytest.mark.parametrize("number", [4, 5, 6, 7])
def test_an_undefined_type_is_refused(number):
    with pytest.raises(RemoteProtocolError, match=f"type {number}"):
        decompress(b"", 0x1 | number << 8)


@KINDS
@settings(deadline=None)
@given(body=st.binary(max_size=2000) | st.binary(max_size=20).map(lambda body: body * 500))
def test_a_body_survives_compression(kind, body):
    assert decompress(compress(body, kind), kind.sys_flag) == body


@KINDS
def test_a_body_of_exactly_the_limit_passes_and_one_byte_more_does_not(kind):
    packed = compress(b"a" * 10_000, kind)
    assert decompress(packed, kind.sys_flag, size_max=10_000) == b"a" * 10_000
    with pytest.raises(RemoteProtocolError, match="9999"):
        decompress(packed, kind.sys_flag, size_max=9_999)


@pytest.mark.slow
@KINDS
def test_a_bomb_stops_at_the_limit(kind):
    packed = compress(bytes(50_000_000), kind)
    with pytest.raises(RemoteProtocolError, match="100000"):
        decompress(packed, kind.sys_flag, size_max=100_000)


def test_a_zstandard_frame_that_does_not_declare_its_size_is_bounded_too():
    import zstandard

    writer = zstandard.ZstdCompressor().compressobj()
    packed = writer.compress(bytes(1_000_000)) + writer.flush()
    assert decompress(packed, CompressionType.ZSTD.sys_flag) == bytes(1_000_000)
    with pytest.raises(RemoteProtocolError, match="999999"):
        decompress(packed, CompressionType.ZSTD.sys_flag, size_max=999_999)


@KINDS
def test_a_body_cut_anywhere_is_refused(kind):
    packed = compress(bytes(range(256)) * 4, kind)
    for size in range(len(packed)):
        if kind is CompressionType.LZ4 and size == 0:
            continue  # no frame at all is an empty body to Apache's reader, and to ours
        with pytest.raises(RemoteProtocolError):
            decompress(packed[:size], kind.sys_flag)


@KINDS
@settings(deadline=None)
@given(data=st.data())
def test_damaged_and_random_bodies_give_a_body_or_the_documented_error(kind, data):
    packed = bytearray(compress(b"some text " * 30, kind))
    if data.draw(st.booleans()):
        position = data.draw(st.integers(0, len(packed) - 1))
        packed[position] = data.draw(st.integers(0, 255))
    else:
        packed = bytearray(data.draw(st.binary(max_size=100)))
    try:
        body = decompress(bytes(packed), kind.sys_flag, size_max=100_000)
    except RemoteProtocolError:
        return
    assert len(body) <= 100_000


def test_lz4_frames_may_follow_each_other():
    packed = compress(b"one", CompressionType.LZ4) + compress(b"two", CompressionType.LZ4)
    assert decompress(packed, CompressionType.LZ4.sys_flag) == b"onetwo"
    with pytest.raises(RemoteProtocolError, match="more than 5"):
        decompress(packed, CompressionType.LZ4.sys_flag, size_max=5)


@pytest.mark.slow
def test_lz4_and_zstandard_are_not_imported_before_they_are_needed():
    code = (
        "import sys, trocket.remoting.message_codec as _; "
        "print(sorted({'lz4', 'zstandard'} & set(sys.modules)))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert answer.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("kind", "package"), [(CompressionType.LZ4, "lz4"), (CompressionType.ZSTD, "zstandard")]
)
def test_without_its_package_a_body_is_refused_with_what_to_install(kind, package, monkeypatch):
    packed = compress(b"abc", kind)
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    text = rf"compressed with {kind.name} .*pip install 'trocket\[compression\]'"
    with pytest.raises(MissingPackageError, match=text):
        compress(b"abc", kind)
    with pytest.raises(MissingPackageError, match=text):
        decompress(packed, kind.sys_flag)
