/* Records of a get that are apart from each other in a file of the log, joined to one body.

   Pure Python: `MessageReader._collect_recent`, whose slices `Channel.write` joins. */
#include "native.h"

#define JOIN_SIZE_MAX 2048 /* bytes of a record, on average; larger ones are sent without a copy */

/* The bytes of all records; 0: not for me. */
static int64_t
total_size(Span units, int64_t base, int64_t map_size, int64_t near_from, int64_t log_end)
{
    int64_t total = 0, end = -1;
    int is_one_piece = 1;
    for (size_t at = 0; at < units.size; at += UNIT_SIZE) {
        const uint8_t *unit = units.bytes + at;
        int64_t offset = (int64_t)load_u64(unit);
        int64_t size = (int32_t)load_u32(unit + 8);
        if (size <= 0 || offset < base || offset < near_from || offset > log_end - size ||
            offset - base > map_size - size)
            return 0;
        is_one_piece &= end == -1 || offset == end;
        end = offset + size;
        total += size;
    }
    return is_one_piece || total > (int64_t)(units.size / UNIT_SIZE) * JOIN_SIZE_MAX ? 0 : total;
}

static PyObject *
join(Span units, const uint8_t *map, int64_t base, int64_t total)
{
    PyObject *joined = new_bytes((size_t)total);
    if (joined == NULL)
        return NULL;
    uint8_t *to = bytes_of(joined);
    for (size_t at = 0; at < units.size; at += UNIT_SIZE) {
        const uint8_t *unit = units.bytes + at;
        to = store_bytes(to, map + (load_u64(unit) - (uint64_t)base), load_u32(unit + 8));
    }
    return joined;
}

/* join_records(units, view, base, near_from, log_end, size_max) -> bytes, None: not for me */
PyObject *
join_records(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    Span units;
    int64_t base, near_from, log_end, size_max;
    if (argument_count("join_records", count, 6) < 0 || bytes_argument(arguments[0], &units) < 0)
        return NULL;
    if (!number_of(arguments[2], 0, INT64_MAX / 2, &base) ||
        !number_of(arguments[3], INT64_MIN, INT64_MAX, &near_from) ||
        !number_of(arguments[4], 0, INT64_MAX / 2, &log_end) ||
        !number_of(arguments[5], INT64_MIN, INT64_MAX, &size_max)) {
        PyErr_SetString(PyExc_ValueError, "a number of join_records() is out of range");
        return NULL;
    }
    if (units.size == 0 || units.size % UNIT_SIZE != 0)
        Py_RETURN_NONE;
    Py_buffer map;
    if (PyObject_GetBuffer(arguments[1], &map, PyBUF_SIMPLE) < 0)
        return NULL;
    int64_t total = total_size(units, base, map.len, near_from, log_end);
    PyObject *joined = total == 0 || total > size_max ? Py_NewRef(Py_None)
                                                      : join(units, map.buf, base, total);
    PyBuffer_Release(&map);
    return joined;
}
