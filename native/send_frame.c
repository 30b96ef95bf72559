/* The frame of a producer's send.

   Pure Python: `SendTemplate.encode` of remoting/send_template.py. */
#include "native.h"

#define START_SIZE (FRAME_START_SIZE + HEADER_SIZE)
#define FIELD_START_SIZE 7 /* size of the name, the name, size of the value */
#define BORN 'g'           /* letters of SendMessageRequestHeaderV2 */
#define PROPERTIES 'i'
#define BORN_MAX INT64_C(999999999999999999) /* 18 digits */

static uint8_t *
store_field(uint8_t *at, char letter, const void *value, size_t size)
{
    at = store_u16(at, 1);
    *at++ = (uint8_t)letter;
    return store_bytes(store_u32(at, (uint32_t)size), value, size);
}

PyObject *
send_frame(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    if (argument_count("send_frame", count, 6) < 0)
        return NULL;
    if (!PyBytes_Check(arguments[0]) || !PyBytes_Check(arguments[1]) ||
        !PyBytes_Check(arguments[4]) || !PyBytes_Check(arguments[5]))
        Py_RETURN_NONE;
    Span start = span_of(arguments[0]), prefix = span_of(arguments[1]);
    Span properties = span_of(arguments[4]), body = span_of(arguments[5]);
    int64_t born_ms, opaque;
    if (!number_of(arguments[2], 0, BORN_MAX, &born_ms) ||
        !number_of(arguments[3], INT32_MIN, INT32_MAX, &opaque))
        Py_RETURN_NONE;
    if (start.size != START_SIZE || properties.size > PROPERTIES_SIZE_MAX ||
        prefix.size > FRAME_SIZE_MAX || body.size > FRAME_SIZE_MAX)
        Py_RETURN_NONE;
    uint8_t digits[DECIMAL_SIZE];
    Span born = {digits, write_decimal(digits, (uint64_t)born_ms)};
    size_t fields_size = prefix.size + FIELD_START_SIZE + born.size;
    if (properties.size)
        fields_size += FIELD_START_SIZE + properties.size;
    size_t size = START_SIZE + fields_size + body.size;
    if (size - 4 > FRAME_SIZE_MAX || HEADER_SIZE + fields_size > 0xFFFFFF)
        Py_RETURN_NONE;
    PyObject *frame = new_bytes(size);
    if (frame == NULL)
        return NULL;
    uint8_t *at = bytes_of(frame);
    memcpy(at, start.bytes, START_SIZE);
    store_u32(at, (uint32_t)(size - 4));
    store_u32(at + 4, 1u << 24 | (uint32_t)(HEADER_SIZE + fields_size));
    store_u32(at + FRAME_START_SIZE + 5, (uint32_t)opaque);
    store_u32(at + START_SIZE - 4, (uint32_t)fields_size);
    at = store_bytes(at + START_SIZE, prefix.bytes, prefix.size);
    at = store_field(at, BORN, born.bytes, born.size);
    if (properties.size)
        at = store_field(at, PROPERTIES, properties.bytes, properties.size);
    store_bytes(at, body.bytes, body.size);
    return frame;
}
