/* Properties of a message: `name 0x01 value 0x02 name 0x01 value 0x02 ...`.

   Pure Python: common/message_properties.py. */
#include "native.h"

/* The last value of a property that is not empty; `bytes` is NULL where there is none. */
Span
find_value(Span properties, const char *name, size_t name_size)
{
    Span found = {NULL, 0};
    const uint8_t *at = properties.bytes, *end = at + properties.size;
    while (at < end) {
        const uint8_t *separator = memchr(at, 2, (size_t)(end - at));
        const uint8_t *item_end = separator ? separator : end;
        size_t size = (size_t)(item_end - at);
        if (size > name_size + 1 && at[name_size] == 1 && memcmp(at, name, name_size) == 0) {
            found.bytes = at + name_size + 1;
            found.size = size - name_size - 1;
        }
        if (separator == NULL)
            break;
        at = separator + 1;
    }
    return found;
}

PyObject *
find_property(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    Span properties, name;
    if (argument_count("find_property", count, 2) < 0 ||
        bytes_argument(arguments[0], &properties) < 0 || bytes_argument(arguments[1], &name) < 0)
        return NULL;
    Span value = find_value(properties, (const char *)name.bytes, name.size);
    if (value.bytes == NULL)
        Py_RETURN_NONE;
    return PyBytes_FromStringAndSize((const char *)value.bytes, (Py_ssize_t)value.size);
}
