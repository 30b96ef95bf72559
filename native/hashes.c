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
    for (int slice = 1; slice < 8; slice++)
        for (uint32_t byte = 0; byte < 256; byte++) {
            uint32_t before = state->crc[slice - 1][byte];
            state->crc[slice][byte] = before >> 8 ^ state->crc[0][before & 0xFF];
        }
}

/* Eight bytes at a time ("slicing by eight"); zlib itself is not there to be linked everywhere. */
uint32_t
crc32_of(const State *state, Span span)
{
    const uint32_t(*table)[256] = state->crc;
    const uint8_t *at = span.bytes;
    size_t left = span.size;
    uint32_t crc = ~UINT32_C(0);
    for (; left >= 8; left -= 8, at += 8) {
        uint32_t low = crc ^ ((uint32_t)at[3] << 24 | (uint32_t)at[2] << 16 |
                              (uint32_t)at[1] << 8 | at[0]);
        crc = table[7][low & 0xFF] ^ table[6][low >> 8 & 0xFF] ^ table[5][low >> 16 & 0xFF] ^
              table[4][low >> 24] ^ table[3][at[4]] ^ table[2][at[5]] ^ table[1][at[6]] ^
              table[0][at[7]];
    }
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
