/* Bytes: big-endian numbers, ASCII tests, and a buffer that grows. */
#ifndef TROCKET_BYTES_H
#define TROCKET_BYTES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint16_t
load_u16(const uint8_t *at)
{
    return (uint16_t)(at[0] << 8 | at[1]);
}

static inline uint32_t
load_u32(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static inline uint8_t *
store_u16(uint8_t *at, uint16_t value)
{
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
    return at + 2;
}

static inline uint8_t *
store_u32(uint8_t *at, uint32_t value)
{
    at[0] = (uint8_t)(value >> 24);
    at[1] = (uint8_t)(value >> 16);
    at[2] = (uint8_t)(value >> 8);
    at[3] = (uint8_t)value;
    return at + 4;
}

static inline uint8_t *
store_u64(uint8_t *at, uint64_t value)
{
    return store_u32(store_u32(at, (uint32_t)(value >> 32)), (uint32_t)value);
}

static inline uint8_t *
store_bytes(uint8_t *at, const void *bytes, size_t size)
{
    if (size)
        memcpy(at, bytes, size);
    return at + size;
}

static inline int
is_ascii(const uint8_t *bytes, size_t size)
{
    uint64_t all = 0, word;
    size_t at = 0;
    for (; at + sizeof word <= size; at += sizeof word) {
        memcpy(&word, bytes + at, sizeof word);
        all |= word;
    }
    for (; at < size; at++)
        all |= bytes[at];
    return !(all & UINT64_C(0x8080808080808080));
}

/* A view of bytes that belong to something else. */
typedef struct {
    const uint8_t *bytes;
    size_t size;
} Span;

/* The first place of `wanted` in a span; NULL: nowhere. (memmem is not in the C standard.) */
static inline const uint8_t *
find_bytes(Span in, const char *wanted, size_t wanted_size)
{
    const uint8_t *at = in.bytes, *end = in.bytes + in.size;
    while ((size_t)(end - at) >= wanted_size) {
        at = memchr(at, wanted[0], (size_t)(end - at) - wanted_size + 1);
        if (at == NULL)
            return NULL;
        if (memcmp(at, wanted, wanted_size) == 0)
            return at;
        at++;
    }
    return NULL;
}

/* A literal without its NUL, as the last two arguments of `find_bytes` and `find_value`. */
#define TEXT(literal) (literal), (sizeof(literal) - 1)

/* Bytes that grow; `buffer_free` ends them. */
typedef struct {
    uint8_t *bytes;
    size_t size, capacity;
} Buffer;

/* Make room for `more` bytes after `size`. Returns -1 with MemoryError set. */
int buffer_reserve(Buffer *buffer, size_t more);
void buffer_free(Buffer *buffer);

#endif
