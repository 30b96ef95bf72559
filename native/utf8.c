/* UTF-8 as Python decodes it strictly: no surrogates, and no longer form than needed. */
#include "native.h"

/* Whether `at` has a continuation byte, for the first one in the given range. */
static int
continues(const uint8_t *at, size_t count, uint8_t low, uint8_t high)
{
    if (at[0] < low || at[0] > high)
        return 0;
    for (size_t next = 1; next < count; next++)
        if ((at[next] & 0xC0) != 0x80)
            return 0;
    return 1;
}

/* The size of the character at the beginning of a span that is not empty; 0: it is none. */
static size_t
character_size(Span text)
{
    uint8_t first = text.bytes[0];
    const uint8_t *rest = text.bytes + 1;
    if (first < 0x80)
        return 1;
    if (first >= 0xC2 && first <= 0xDF)
        return text.size >= 2 && continues(rest, 1, 0x80, 0xBF) ? 2 : 0;
    if (first >= 0xE0 && first <= 0xEF)
        return text.size >= 3 && continues(rest, 2, first == 0xE0 ? 0xA0 : 0x80,
                                           first == 0xED ? 0x9F : 0xBF)
                   ? 3
                   : 0;
    if (first >= 0xF0 && first <= 0xF4)
        return text.size >= 4 && continues(rest, 3, first == 0xF0 ? 0x90 : 0x80,
                                           first == 0xF4 ? 0x8F : 0xBF)
                   ? 4
                   : 0;
    return 0;
}

int
is_utf8(Span text)
{
    if (is_ascii(text))
        return 1;
    while (text.size) {
        size_t size = character_size(text);
        if (size == 0)
            return 0;
        text.bytes += size;
        text.size -= size;
    }
    return 1;
}
