/* Protocol buffers: the fields of a message, read and written.

   Source: the encoding of protocol buffers, protobuf.dev/programming-guides/encoding. */
#ifndef TROCKET_PROTOBUF_H
#define TROCKET_PROTOBUF_H

#include "native.h"

#define VARINT_SIZE_MAX 10
#define WIRE_VARINT 0
#define WIRE_SIZED 2

/* A field: its number with its wire type, and a number or bytes. */
typedef struct {
    uint32_t tag;
    uint64_t number;
    Span bytes;
} ProtoField;

#define SIZED(field) ((uint32_t)(field) << 3 | WIRE_SIZED)
#define VARINT(field) ((uint32_t)(field) << 3 | WIRE_VARINT)

/* Read a varint of at most ten bytes; 0: there is none, or it has more than 64 bits. */
static inline int
read_varint(Span *data, uint64_t *number)
{
    uint64_t value = 0;
    for (size_t at = 0; at < data->size && at < VARINT_SIZE_MAX; at++) {
        uint8_t byte = data->bytes[at];
        if (at == VARINT_SIZE_MAX - 1 && byte > 1)
            return 0;
        value |= (uint64_t)(byte & 0x7F) << (7 * at);
        if (byte < 0x80) {
            data->bytes += at + 1;
            data->size -= at + 1;
            *number = value;
            return 1;
        }
    }
    return 0;
}

/* Read the next field; 0: it is damaged, or has a wire type that no field here has. */
static inline int
read_proto_field(Span *data, ProtoField *field)
{
    uint64_t tag;
    if (!read_varint(data, &tag) || tag > UINT32_MAX || tag >> 3 == 0)
        return 0;
    field->tag = (uint32_t)tag;
    if ((tag & 7) == WIRE_VARINT)
        return read_varint(data, &field->number);
    if ((tag & 7) != WIRE_SIZED || !read_varint(data, &field->number) ||
        field->number > data->size)
        return 0;
    field->bytes = (Span){data->bytes, (size_t)field->number};
    data->bytes += field->bytes.size;
    data->size -= field->bytes.size;
    return 1;
}

static inline size_t
varint_size(uint64_t number)
{
    size_t size = 1;
    while (number >>= 7)
        size++;
    return size;
}

static inline uint8_t *
write_varint(uint8_t *at, uint64_t number)
{
    for (; number >= 0x80; number >>= 7)
        *at++ = (uint8_t)(number | 0x80);
    *at++ = (uint8_t)number;
    return at;
}

/* The size of a field with bytes, whose tag takes one byte or two. */
static inline size_t
sized_size(uint32_t tag, size_t size)
{
    return varint_size(tag) + varint_size(size) + size;
}

static inline uint8_t *
write_sized(uint8_t *at, uint32_t tag, Span bytes)
{
    at = write_varint(write_varint(at, tag), bytes.size);
    return store_bytes(at, bytes.bytes, bytes.size);
}

#endif
