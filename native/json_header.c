/* JSON headers of commands, as peers in all languages write them: an object of numbers and
   short strings, and in it `extFields`, an object of strings.

   Pure Python: `_decode_json` of remoting/codec.py. What this scanner takes means the same there;
   it leaves out much that is legal, such as a member twice, or any other member. */
#include "native.h"

/* the bits of two members */
#define CODE 1
#define EXT_FIELDS 8

int
any_code(int32_t Py_UNUSED(code))
{
    return 1;
}

static void
skip_space(Span *text)
{
    while (text->size && (*text->bytes == ' ' || *text->bytes == '\n' || *text->bytes == '\t' ||
                          *text->bytes == '\r')) {
        text->bytes++;
        text->size--;
    }
}

/* Skip a character, and space before it; 0: another one is there. */
static int
skip(Span *text, char character)
{
    skip_space(text);
    if (text->size == 0 || *text->bytes != (uint8_t)character)
        return 0;
    text->bytes++;
    text->size--;
    return 1;
}

static int
hex_digit(uint8_t byte)
{
    if (byte >= '0' && byte <= '9')
        return byte - '0';
    if (byte >= 'a' && byte <= 'f')
        return byte - 'a' + 10;
    if (byte >= 'A' && byte <= 'F')
        return byte - 'A' + 10;
    return -1;
}

/* The ASCII character that is written after a backslash, and how many bytes it takes there; -1. */
static int
escaped_character(const uint8_t *at, size_t left, size_t *size)
{
    static const char letters[] = "\"\\/bfnrt", characters[] = "\"\\/\b\f\n\r\t";
    if (left == 0)
        return -1;
    const char *letter = at[0] ? strchr(letters, at[0]) : NULL;
    *size = 1;
    if (letter != NULL)
        return characters[letter - letters];
    if (at[0] != 'u' || left < 5 || at[1] != '0' || at[2] != '0')
        return -1;
    int high = hex_digit(at[3]), low = hex_digit(at[4]);
    *size = 5;
    return high < 0 || high > 7 || low < 0 ? -1 : high << 4 | low;
}

/* Read the rest of a string that has a backslash `before` bytes after its start. */
static int
read_escaped(Span *text, size_t before, Unescaped *unescaped, Span *value)
{
    const uint8_t *at = text->bytes + before, *end = text->bytes + text->size;
    if (unescaped->bytes == NULL)
        unescaped->bytes = PyMem_Malloc(unescaped->size_max);
    if (unescaped->bytes == NULL)
        return 0;
    uint8_t *start = unescaped->bytes + unescaped->size;
    uint8_t *to = store_bytes(start, text->bytes, before);
    while (at < end && *at != '"') {
        if (*at < 0x20)
            return 0;
        if (*at != '\\') {
            *to++ = *at++;
            continue;
        }
        size_t size;
        int character = escaped_character(at + 1, (size_t)(end - at) - 1, &size);
        if (character < 0)
            return 0;
        *to++ = (uint8_t)character;
        at += 1 + size;
    }
    if (at == end)
        return 0;
    *value = (Span){start, (size_t)(to - start)};
    unescaped->size += value->size;
    text->bytes = at + 1;
    text->size = (size_t)(end - at) - 1;
    return 1;
}

static int
read_string(Span *text, Unescaped *unescaped, Span *value)
{
    if (!skip(text, '"'))
        return 0;
    size_t size = 0;
    while (size < text->size && text->bytes[size] != '"') {
        if (text->bytes[size] == '\\')
            return read_escaped(text, size, unescaped, value);
        if (text->bytes[size] < 0x20)
            return 0;
        size++;
    }
    if (size == text->size)
        return 0;
    *value = (Span){text->bytes, size};
    text->bytes += size + 1;
    text->size -= size + 1;
    return 1;
}

/* A whole number of 32 bits. What may follow it is for the caller to see. */
static int
read_int32(Span *text, int32_t *number)
{
    int is_negative = skip(text, '-');
    if (!is_negative)
        skip_space(text);
    uint64_t value;
    size_t size = read_digits(*text, is_negative ? INT32_MAX + UINT64_C(1) : INT32_MAX, &value);
    if (size == 0 || (is_negative && value == 0))
        return 0;
    *number = (int32_t)(is_negative ? -(int64_t)value : (int64_t)value);
    text->bytes += size;
    text->size -= size;
    return 1;
}

static int
skip_null(Span *text)
{
    skip_space(text);
    if (text->size < 4 || memcmp(text->bytes, "null", 4) != 0)
        return 0;
    text->bytes += 4;
    text->size -= 4;
    return 1;
}

static int
read_fields(Span *text, JsonHeader *header, Unescaped *unescaped)
{
    Span name, value;
    if (!skip(text, '{'))
        return 0;
    if (skip(text, '}'))
        return 1;
    do {
        if (header->field_count == FIELDS_MAX || !read_string(text, unescaped, &name) ||
            !skip(text, ':') || !read_string(text, unescaped, &value))
            return 0;
        header->fields[header->field_count++] = (Field){name, value};
    } while (skip(text, ','));
    return skip(text, '}');
}

/* Read the value of a member. Returns the member's bit; 0: it is not usual. */
static int
read_member(Span *text, Span name, JsonHeader *header, Unescaped *unescaped)
{
    Span ignored;
    if (equals(name, TEXT("code")))
        return read_int32(text, &header->code) ? CODE : 0;
    if (equals(name, TEXT("flag")))
        return read_int32(text, &header->flag) ? 2 : 0;
    if (equals(name, TEXT("opaque")))
        return read_int32(text, &header->opaque) ? 4 : 0;
    if (equals(name, TEXT("extFields")))
        return read_fields(text, header, unescaped) ? EXT_FIELDS : 0;
    if (equals(name, TEXT("version")))
        return read_int32(text, &header->version) ? 16 : 0;
    if (equals(name, TEXT("language")))
        return read_string(text, unescaped, &header->language) ? 32 : 0;
    if (equals(name, TEXT("serializeTypeCurrentRPC")))
        return read_string(text, unescaped, &ignored) ? 64 : 0;
    if (equals(name, TEXT("remark")))
        return skip_null(text) ? 128 : 0;
    return 0;
}

/* Read the header of a command with a wanted code; 0: it is another one, or not usual.
   `unescaped` still has room for the whole text. */
int
read_json_header(Span text, int (*is_wanted)(int32_t code), JsonHeader *header,
                 Unescaped *unescaped)
{
    Span name, whole = text;
    int seen = 0;
    header->code = header->flag = header->opaque = header->version = 0;
    header->language.bytes = NULL;
    header->field_count = 0;
    if (!skip(&text, '{'))
        return 0;
    do {
        if (!read_string(&text, unescaped, &name) || !skip(&text, ':'))
            return 0;
        int member = read_member(&text, name, header, unescaped);
        if (member == 0 || seen & member || (member == CODE && !is_wanted(header->code)))
            return 0;
        seen |= member;
    } while (skip(&text, ','));
    if (!skip(&text, '}'))
        return 0;
    skip_space(&text);
    header->has_fields = (seen & EXT_FIELDS) != 0;
    return text.size == 0 && seen & CODE && is_utf8(whole);
}
