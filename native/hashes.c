/* Hashes: CRC-32 as zlib computes it, and Java's String.hashCode of ASCII. */
#include "native.h"

#define CRC_POLYNOMIAL 0xEDB88320u

void
make_crc_table(State *state)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? CRC_POLYNOMIAL : 0);
        state->crc[0][byte] = crc;
    }
    for (int slice = 1; slice < CRC_SLICES; slice++)
        for (uint32_t byte = 0; byte < 256; byte++) {
            uint32_t before = state->crc[slice - 1][byte];
            state->crc[slice][byte] = before >> 8 ^ state->crc[0][before & 0xFF];
        }
}

static inline uint64_t
load_little(const uint8_t *at)
{
    return (uint64_t)at[7] << 56 | (uint64_t)at[6] << 48 | (uint64_t)at[5] << 40 |
           (uint64_t)at[4] << 32 | (uint64_t)at[3] << 24 | (uint64_t)at[2] << 16 |
           (uint64_t)at[1] << 8 | at[0];
}

/* The part that eight bytes have in a checksum. */
static inline uint32_t
slices_of(const uint32_t (*table)[256], uint64_t word)
{
    return table[7][word & 0xFF] ^ table[6][word >> 8 & 0xFF] ^ table[5][word >> 16 & 0xFF] ^
           table[4][word >> 24 & 0xFF] ^ table[3][word >> 32 & 0xFF] ^
           table[2][word >> 40 & 0xFF] ^ table[1][word >> 48 & 0xFF] ^ table[0][word >> 56];
}

/* Sixteen bytes at a time ("slicing by sixteen"): each step waits for the one before, and half as
   many steps take half the time. zlib itself is not there to be linked everywhere. */
uint32_t
crc32_of(const State *state, Span span)
{
    const uint32_t(*table)[256] = state->crc;
    const uint8_t *at = span.bytes;
    size_t left = span.size;
    uint32_t crc = ~UINT32_C(0);
    for (; left >= 16; left -= 16, at += 16)
        crc = slices_of(table, load_little(at + 8)) ^ slices_of(table + 8, load_little(at) ^ crc);
    for (; left; left--, at++)
        crc = crc >> 8 ^ table[0][(crc ^ *at) & 0xFF];
    return ~crc;
}

uint32_t
java_hash(uint32_t before, Span ascii)
{
    for (size_t at = 0; at < ascii.size; at++)
        before = before * 31 + ascii.bytes[at];
    return before;
}
