/* Records of the commit log, and units of queues.

   Pure Python: store/writing/message_appender.py; remoting/record_schema.py has the layout. */
#include "native.h"

#define SEPARATOR 2

/* Between a message's own properties and the broker's; 4.9 sends none after the last one. */
size_t
separator_size(const Record *record)
{
    Span own = record->properties;
    return own.size && record->added.size && own.bytes[own.size - 1] != SEPARATOR;
}

size_t
record_size(const Record *record)
{
    return RECORD_HEAD_SIZE + record->body.size + record->topic_field.size + 2 +
           record->properties.size + separator_size(record) + record->added.size;
}

/* The caller has checked that all sizes fit. */
uint8_t *
write_record(const State *state, uint8_t *at, const Record *record)
{
    size_t separators = separator_size(record);
    size_t properties_size = record->properties.size + separators + record->added.size;
    at = store_u32(at, (uint32_t)record_size(record));
    at = store_u32(at, MAGIC_V1);
    at = store_u32(at, crc32_of(state, record->body) & 0x7FFFFFFF);
    at = store_u32(at, record->queue_id);
    at = store_u32(at, record->flag);
    at = store_u64(at, record->queue_offset);
    at = store_u64(at, record->physical_offset);
    at = store_u32(at, record->sys_flag);
    at = store_u64(at, record->born_ms);
    at = store_bytes(at, record->born_host, HOST_SIZE);
    at = store_u64(at, record->store_ms);
    at = store_bytes(at, record->store_host, HOST_SIZE);
    at = store_u32(at, record->reconsume_times);
    at = store_u64(at, record->prepared_offset);
    at = store_u32(at, (uint32_t)record->body.size);
    at = store_bytes(at, record->body.bytes, record->body.size);
    at = store_bytes(at, record->topic_field.bytes, record->topic_field.size);
    at = store_u16(at, (uint16_t)properties_size);
    at = store_bytes(at, record->properties.bytes, record->properties.size);
    if (separators)
        *at++ = SEPARATOR;
    return store_bytes(at, record->added.bytes, record->added.size);
}

uint8_t *
write_unit(uint8_t *at, uint64_t physical_offset, size_t size, int64_t tags_code)
{
    at = store_u64(at, physical_offset);
    at = store_u32(at, (uint32_t)size);
    return store_u64(at, (uint64_t)tags_code);
}
