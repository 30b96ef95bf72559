/* Entries of the hash index: from keys to entries, and from entries to slots.

   Pure Python: store/index/index_service.py and index_file.py. */
#include "native.h"

/* An entry that is not in a file yet: hash of the key, offset and time of the message. */
static uint8_t *
write_entry(uint8_t *at, uint32_t hash, int64_t physical_offset, int64_t store_ms)
{
    at = store_bytes(at, &hash, sizeof hash);
    at = store_bytes(at, &physical_offset, sizeof physical_offset);
    return store_bytes(at, &store_ms, sizeof store_ms);
}

/* |hashCode|, 0 for the one code without a positive twin. */
static uint32_t
key_hash(uint32_t topic_hash, Span key)
{
    uint32_t hash = java_hash(topic_hash, key);
    return hash < 0x80000000u ? hash : (0u - hash) & 0x7FFFFFFF;
}

static int
add_entry(Buffer *entries, uint32_t hash, int64_t physical_offset, int64_t store_ms)
{
    if (buffer_reserve(entries, ENTRY_SIZE) < 0)
        return -1;
    write_entry(entries->bytes + entries->size, hash, physical_offset, store_ms);
    entries->size += ENTRY_SIZE;
    return 0;
}

/* Add the entries of a message: of its unique key, of each of its keys, then of its tags.
   Not for me: a key or the tags are not ASCII, and nothing was added. */
Outcome
add_entries(Buffer *entries, uint32_t topic_hash, const Keys *keys, int64_t physical_offset,
            int64_t store_ms)
{
    if (!are_ascii(keys))
        return NOT_FOR_ME;
    if (keys->unique_key.bytes != NULL &&
        add_entry(entries, key_hash(topic_hash, keys->unique_key), physical_offset, store_ms) < 0)
        return FAILED;
    const Span tags_head = {(const uint8_t *)"T#", 2};
    Span rest = keys->keys;
    while (rest.size) {
        const uint8_t *space = memchr(rest.bytes, ' ', rest.size);
        size_t size = space ? (size_t)(space - rest.bytes) : rest.size;
        Span key = {rest.bytes, size};
        if (size && add_entry(entries, key_hash(topic_hash, key), physical_offset, store_ms) < 0)
            return FAILED;
        size_t used = size + (space != NULL);
        rest.bytes += used;
        rest.size -= used;
    }
    if (keys->tags.size &&
        add_entry(entries, key_hash(java_hash(topic_hash, tags_head), keys->tags), physical_offset,
                  store_ms) < 0)
        return FAILED;
    return USUAL;
}

/* Add the entries of an IndexItem, as `add_entries`. */
static Outcome
add_item(Buffer *entries, PyObject *item)
{
    if (!PyTuple_CheckExact(item) || PyTuple_GET_SIZE(item) != 4)
        return NOT_FOR_ME;
    PyObject *properties = PyTuple_GET_ITEM(item, 1);
    int64_t topic_hash, physical_offset, store_ms;
    if (!PyBytes_CheckExact(properties) ||
        !number_of(PyTuple_GET_ITEM(item, 0), 0, UINT32_MAX, &topic_hash) ||
        !number_of(PyTuple_GET_ITEM(item, 2), INT64_MIN, INT64_MAX, &physical_offset) ||
        !number_of(PyTuple_GET_ITEM(item, 3), INT64_MIN, INT64_MAX, &store_ms))
        return NOT_FOR_ME;
    Keys keys = find_keys(span_of(properties));
    return add_entries(entries, (uint32_t)topic_hash, &keys, physical_offset, store_ms);
}

/* index_entries(items) -> (entries, number of items done) */
PyObject *
index_entries(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    if (argument_count("index_entries", count, 1) < 0)
        return NULL;
    if (!PyList_CheckExact(arguments[0])) {
        PyErr_SetString(PyExc_TypeError, "index_entries() takes a list");
        return NULL;
    }
    Buffer entries = {NULL, 0, 0};
    Py_ssize_t done = 0;
    Outcome added = USUAL;
    for (; done < PyList_GET_SIZE(arguments[0]); done++) {
        added = add_item(&entries, PyList_GET_ITEM(arguments[0], done));
        if (added != USUAL)
            break;
    }
    PyObject *result = NULL;
    if (added != FAILED)
        result = Py_BuildValue("(y#n)", entries.bytes ? (char *)entries.bytes : "",
                               (Py_ssize_t)entries.size, done);
    buffer_free(&entries);
    return result;
}

/* A file that is being filled. */
typedef struct {
    int32_t *slots;
    uint32_t slot_count;
    int32_t count;    /* the next entry's number */
    int64_t begin_ms; /* time of the first entry; before it, of the previous file's end */
    Py_ssize_t new_slots;
} Filling;

static uint8_t *
put_entry(Filling *file, uint8_t *at, const uint8_t *entry)
{
    uint32_t hash;
    int64_t physical_offset, store_ms;
    memcpy(&hash, entry, sizeof hash);
    memcpy(&physical_offset, entry + 4, sizeof physical_offset);
    memcpy(&store_ms, entry + 12, sizeof store_ms);
    int32_t *slot = &file->slots[hash % file->slot_count];
    int32_t previous = *slot;
    if (previous <= 0 || previous >= file->count) {
        previous = 0;
        file->new_slots++;
    }
    int64_t seconds = 0;
    if (file->begin_ms > 0 && store_ms > file->begin_ms)
        seconds = (store_ms - file->begin_ms) / 1000;
    if (seconds > INT32_MAX)
        seconds = INT32_MAX;
    if (file->count == 1)
        file->begin_ms = store_ms;
    *slot = file->count++;
    at = store_u32(at, hash);
    at = store_u64(at, (uint64_t)physical_offset);
    at = store_u32(at, (uint32_t)seconds);
    return store_u32(at, (uint32_t)previous);
}

/* index_put(slots, slot_count, index_count, index_count_max, begin_ms, entries, first)
   -> (bytes for the file, number of entries put, number of new slots) */
PyObject *
index_put(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    Span entries;
    int64_t slot_count, index_count, index_count_max, begin_ms, first;
    if (argument_count("index_put", count, 7) < 0 || bytes_argument(arguments[5], &entries) < 0)
        return NULL;
    if (!number_of(arguments[1], 1, INT32_MAX, &slot_count) ||
        !number_of(arguments[2], 1, INT32_MAX, &index_count) ||
        !number_of(arguments[3], 0, INT32_MAX, &index_count_max) ||
        !number_of(arguments[4], INT64_MIN, INT64_MAX, &begin_ms) ||
        !number_of(arguments[6], 0, (int64_t)(entries.size / ENTRY_SIZE), &first)) {
        PyErr_SetString(PyExc_ValueError, "index_put() got a number out of range");
        return NULL;
    }
    Py_buffer slots;
    if (PyObject_GetBuffer(arguments[0], &slots, PyBUF_WRITABLE) < 0)
        return NULL;
    if (slots.len / (Py_ssize_t)sizeof(int32_t) < slot_count ||
        slots.itemsize != (Py_ssize_t)sizeof(int32_t)) {
        PyBuffer_Release(&slots);
        PyErr_SetString(PyExc_ValueError, "index_put() got too few slots");
        return NULL;
    }
    int64_t put = (int64_t)(entries.size / ENTRY_SIZE) - first;
    int64_t room = index_count_max > index_count ? index_count_max - index_count : 0;
    if (put > room)
        put = room;
    PyObject *packed = new_bytes((size_t)put * ENTRY_SIZE);
    if (packed == NULL) {
        PyBuffer_Release(&slots);
        return NULL;
    }
    Filling file = {slots.buf, (uint32_t)slot_count, (int32_t)index_count, begin_ms, 0};
    uint8_t *at = bytes_of(packed);
    const uint8_t *entry = entries.bytes + (size_t)first * ENTRY_SIZE;
    for (int64_t done = 0; done < put; done++, entry += ENTRY_SIZE)
        at = put_entry(&file, at, entry);
    PyBuffer_Release(&slots);
    return Py_BuildValue("(Nnn)", packed, (Py_ssize_t)put, file.new_slots);
}
