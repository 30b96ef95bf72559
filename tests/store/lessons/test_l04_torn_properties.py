"""A tear that no body checksum covers is found.

Apache's checksum covers the body: a bit flip in the head, or a tear inside the properties, passes
its recovery. Here properties with a NUL byte count only with a right checksum of the whole record,
in bytes that this program wrote; and that checksum is verified.
"""

from __future__ import annotations

from trocket.disk.memory_disk import MemoryDisk
from trocket.remoting.message_crc import crc_property

from ..damaged import LOG, crashed
from ..support import ROOT, bodies, open_store, send


def test_a_record_torn_inside_its_properties_is_cut():
    disk = MemoryDisk()
    store = open_store(disk)
    send(store, b"whole", properties=b"A\x01b\x02")
    end = store.max_physical_offset
    send(store, b"torn", properties=b"A\x01bcdefgh\x02")
    disk.process_death()
    log = disk.contents[LOG]
    log[store.max_physical_offset - 4 : store.max_physical_offset] = bytes(4)
    again = open_store(disk)
    assert bodies(again) == [b"whole"]
    assert again.max_physical_offset == end
    assert not any(log[end:])


def test_a_record_whose_whole_crc_is_wrong_is_cut():
    disk = MemoryDisk()
    store = open_store(disk, enabled_append_prop_crc=True)
    send(store, b"whole", properties=b"A\x01b\x02")
    end = store.max_physical_offset
    send(store, b"damaged", properties=b"A\x01b\x02")
    disk.process_death()
    disk.contents[LOG][end + 15] ^= 1  # the queue id: no other checksum covers it
    again = open_store(disk)
    assert bodies(again) == [b"whole"]
    assert again.max_physical_offset == end


def test_a_wrong_whole_crc_in_bytes_that_are_not_known_to_be_ours_is_let_pass():
    """A client that sends on what it got keeps the property of the message it got."""
    disk = MemoryDisk()
    store = open_store(disk)
    send(store, b"whole", properties=b"A\x01b\x02" + crc_property([b"?"])[:-2] + b"?\x02")
    disk.process_death()
    del disk.contents[f"{ROOT}/checkpoint"]
    assert bodies(open_store(disk)) == [b"whole"]


def test_a_record_with_an_impossible_topic_ends_the_log():
    disk, offsets, end = crashed()
    disk.contents[LOG][end - 3] = 0
    assert open_store(disk).max_physical_offset == offsets[4]


def test_a_record_that_apache_left_torn_inside_its_properties_is_served_as_apache_serves_it():
    """Nothing in its bytes tells it from one that was acknowledged with a NUL in a property."""
    disk = MemoryDisk()
    store = open_store(disk)
    send(store, b"torn", properties=b"A\x01bcdefgh\x02")
    disk.process_death()
    end = store.max_physical_offset
    disk.contents[LOG][end - 4 : end] = bytes(4)
    del disk.contents[f"{ROOT}/checkpoint"]  # where ours notes which bytes it wrote
    again = open_store(disk)
    assert bodies(again) == [b"torn"]
    assert again.max_physical_offset == end
