/* Properties of a message: `name 0x01 value 0x02 name 0x01 value 0x02 ...`.

   Pure Python: common/message_properties.py. */
#include "native.h"

/* Whether an item is of a property, and its value is not empty. */
static int
is_named(const uint8_t *item, size_t size, const char *name, size_t name_size)
{
    return size > name_size + 1 && item[name_size] == 1 && memcmp(item, name, name_size) == 0;
}

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
        if (is_named(at, size, name, name_size))
            found = (Span){at + name_size + 1, size - name_size - 1};
        if (separator == NULL)
            break;
        at = separator + 1;
    }
    return found;
}

/* TAGS, UNIQ_KEY and KEYS, as `find_value` finds each. */
Keys
find_keys(Span properties)
{
    Keys found = {{NULL, 0}, {NULL, 0}, {NULL, 0}};
    const uint8_t *at = properties.bytes, *end = at + properties.size;
    while (at < end) {
        const uint8_t *separator = memchr(at, 2, (size_t)(end - at));
        size_t size = (size_t)((separator ? separator : end) - at);
        if (is_named(at, size, TEXT("TAGS")))
            found.tags = (Span){at + 5, size - 5};
        else if (is_named(at, size, TEXT("KEYS")))
            found.keys = (Span){at + 5, size - 5};
        else if (is_named(at, size, TEXT("UNIQ_KEY")))
            found.unique_key = (Span){at + 9, size - 9};
        if (separator == NULL)
            break;
        at = separator + 1;
    }
    return found;
}

int
are_ascii(const Keys *keys)
{
    return is_ascii(keys->tags) && is_ascii(keys->unique_key) && is_ascii(keys->keys);
}

/* Whether a record with these properties gets a checksum or loses one: both are for Python. */
int
needs_pure_record(Span properties)
{
    return properties.size && (memchr(properties.bytes, 0, properties.size) != NULL ||
                               memchr(properties.bytes, '#', properties.size) != NULL);
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
