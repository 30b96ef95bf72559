"""When a store may start read-only after a power cut.

Under SYNC_FLUSH several commits may wait for one fsync. A power cut may keep a later one's sectors
and lose an earlier one's. The store then finds whole records behind lost ones. It cannot know
whether those lost were acknowledged (then a device has lost synced bytes, and cutting would lose
more) or were still waiting. It must not guess, so it starts read-only. Under ASYNC_FLUSH what is
behind the last checkpoint may be lost by contract, and the log is cut.
"""

from __future__ import annotations

from trocket.remoting.errors import RemoteProtocolError
from trocket.remoting.message_codec import MAGIC_BLANK, RECORD_SIZE_MIN, decode_record
from trocket.store.config import FlushDiskType, MessageStoreConfig

from ..file_system import Image

MAGICS = (b"\xda\xa3\x20\xa7", b"\xda\xa3\x20\xab")


def is_hole_unavoidable(config: MessageStoreConfig, image: Image) -> bool:
    """Whether the image's log has a whole record behind one that is not, under SYNC_FLUSH."""
    if config.flush_disk_type is not FlushDiskType.SYNC_FLUSH:
        return False
    folder = f"{config.commit_log_folder}/"
    files = {
        int(path[len(folder) :]): bytes(data)
        for path, data in image.files.items()
        if path.startswith(folder)
    }
    end = _end_of_records(files, config.mapped_file_size_commit_log)
    for base, data in sorted(files.items()):
        for position in range(max(end + 1 - base, 0), len(data) - RECORD_SIZE_MIN):
            if data[position + 4 : position + 8] in MAGICS and _size_at(data, position, base):
                return True
    return False


def _end_of_records(files: dict[int, bytes], file_size: int) -> int:
    offset = min(files, default=0)
    while True:
        base = offset - offset % file_size
        data = files.get(base, b"")
        position = offset - base
        left = file_size - position
        if data[position : position + 8] == left.to_bytes(4, "big") + (
            MAGIC_BLANK & 0xFFFFFFFF
        ).to_bytes(4, "big"):
            offset = base + file_size
            continue
        size = _size_at(data, position, base)
        if not size:
            return offset
        offset += size


def _size_at(data: bytes, position: int, base: int) -> int:
    """The size of the whole record there; 0 when there is none."""
    size = int.from_bytes(data[position : position + 4], "big")
    if not RECORD_SIZE_MIN <= size <= len(data) - position:
        return 0
    if data[position + 4 : position + 8] not in MAGICS:
        return 0
    try:
        record = decode_record(data[position : position + size], 0, check_crc=True)
    except RemoteProtocolError:
        return 0
    whole = record.physical_offset == base + position and record.store_size == size
    properties = record.properties_bytes
    return size if whole and (b"\0" not in properties or b"__CRC32#" in properties) else 0
