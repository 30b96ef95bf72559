/* Bytes: big-endian and decimal numbers, comparisons, and a buffer that grows. */
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

static inline uint64_t
load_u64(const uint8_t *at)
{
    return (uint64_t)load_u32(at) << 32 | load_u32(at + 4);
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

/* A view of bytes that belong to something else. */
typedef struct {
    const uint8_t *bytes;
    size_t size;
} Span;

static inline int
is_ascii(Span span)
{
    uint64_t all = 0, word;
    size_t at = 0;
    for (; at + sizeof word <= span.size; at += sizeof word) {
        memcpy(&word, span.bytes + at, sizeof word);
        all |= word;
    }
    for (; at < span.size; at++)
        all |= span.bytes[at];
    return !(all & UINT64_C(0x8080808080808080));
}

static inline int
equals(Span span, const void *bytes, size_t size)
{
    return span.size == size && memcmp(span.bytes, bytes, size) == 0;
}

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

/* A literal without its NUL, as two arguments: where bytes are compared or looked for. */
#define TEXT(literal) (literal), (sizeof(literal) - 1)

#define DECIMAL_SIZE 20 /* bytes of the largest number */

/* Read the decimal digits that a span begins with, as `str` writes a number: without zeros before
   it. Returns how many there are; 0: none, zeros before it, or more than `max`, which is below
   10 ** 18. */
static inline size_t
read_digits(Span text, uint64_t max, uint64_t *number)
{
    size_t size = 0;
    uint64_t value = 0;
    while (size < text.size && text.bytes[size] >= '0' && text.bytes[size] <= '9') {
        value = value * 10 + (uint64_t)(text.bytes[size++] - '0');
        if (value > max)
            return 0;
    }
    if (size > 1 && text.bytes[0] == '0')
        return 0;
    *number = value;
    return size;
}

/* Whether a span is such a number and nothing else. */
static inline int
read_decimal(Span text, uint64_t max, uint64_t *number)
{
    return text.size != 0 && read_digits(text, max, number) == text.size;
}

/* Write a number; returns its size. */
static inline size_t
write_decimal(uint8_t *at, uint64_t number)
{
    uint8_t digits[DECIMAL_SIZE], *first = digits + DECIMAL_SIZE;
    do
        *--first = (uint8_t)('0' + number % 10);
    while (number /= 10);
    size_t size = (size_t)(digits + DECIMAL_SIZE - first);
    memcpy(at, first, size);
    return size;
}

/* Bytes that grow; `buffer_free` ends them. */
typedef struct {
    uint8_t *bytes;
    size_t size, capacity;
} Buffer;

/* Make room for `more` bytes after `size`. Returns -1 with MemoryError set. */
int buffer_reserve(Buffer *buffer, size_t more);
void buffer_free(Buffer *buffer);

#endif
