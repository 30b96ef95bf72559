"""Extension: the functions of the C extension, as Python calls them.

Each does the usual case of a function in pure Python, which is its specification, stands beside its
use, and is named below. "Not for me" means: nothing was changed, and the pure function must do it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class Extension(Protocol):
    """The module `trocket.native._native`; arguments are positional.

    Attributes:
      sources_crc: checksum of the sources that it was built from.
    """

    sources_crc: int

    def decode_frames(
        self,
        command_class: type,
        no_fields: Mapping[str, str],
        header_size_max: int,
        fields_max: int,
        data: bytes,
        frame_size_max: int,
        commands: list[Any],
        /,
    ) -> int:
        """Decode the frames with a binary header and without a remark at the beginning of `data`.

        Returns: the position of the first byte that is not decoded: of an incomplete frame, or of
          one that is not for me. Pure: `codec.FrameDecoder.receive_data`.
        """

    def find_property(self, properties: bytes, name: bytes, /) -> bytes | None:
        """One property's value. Pure: `message_properties.find_property`."""
