/* One message that Python stores: its record, and its unit in a plain queue.

   Pure Python: `MessageAppender.put_message`. */
#include "native.h"

/* The numbers of a record; 0: one of them does not fit into its field, or a host is IPv6. */
static int
read_record(PyObject *const *arguments, const Queue *queue, Record *record, int64_t *tags_code)
{
    Span born_host, store_host;
    int64_t queue_id, flag, sys_flag, born_ms, store_ms, reconsume_times, prepared_offset,
        physical_offset;
    if (!number_of(arguments[1], INT32_MIN, INT32_MAX, &queue_id) ||
        !number_of(arguments[4], INT32_MIN, INT32_MAX, &flag) ||
        !number_of(arguments[5], INT32_MIN, INT32_MAX, &sys_flag) ||
        !number_of(arguments[6], INT64_MIN, INT64_MAX, &born_ms) ||
        !number_of(arguments[8], INT64_MIN, INT64_MAX, &store_ms) ||
        !number_of(arguments[10], INT32_MIN, INT32_MAX, &reconsume_times) ||
        !number_of(arguments[11], INT64_MIN, INT64_MAX, &prepared_offset) ||
        !number_of(arguments[12], 0, INT64_MAX / 2, &physical_offset) ||
        !number_of(arguments[14], INT64_MIN, INT64_MAX, tags_code) ||
        !PyBytes_CheckExact(arguments[7]) || !PyBytes_CheckExact(arguments[9]))
        return 0;
    born_host = span_of(arguments[7]);
    store_host = span_of(arguments[9]);
    if (born_host.size != HOST_SIZE || store_host.size != HOST_SIZE)
        return 0;
    *record = (Record){
        .queue_id = (uint32_t)queue_id,
        .flag = (uint32_t)flag,
        .sys_flag = (uint32_t)sys_flag & ~(uint32_t)HOSTS_V6,
        .reconsume_times = (uint32_t)reconsume_times,
        .physical_offset = (uint64_t)physical_offset,
        .born_ms = (uint64_t)born_ms,
        .store_ms = (uint64_t)store_ms,
        .prepared_offset = (uint64_t)prepared_offset,
        .born_host = born_host.bytes,
        .store_host = store_host.bytes,
        .topic_field = span_of(queue->topic_field),
    };
    return 1;
}

/* pack_put(queue, queue_id, body, properties, flag, sys_flag, born_ms, born_host, store_ms,
            store_host, reconsume_times, prepared_offset, physical_offset, file_end, tags_code,
            touched)
   -> the record; None: not for me, or it has no room; nothing has changed then */
PyObject *
pack_put(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    State *state = state_of(module);
    Record record;
    int64_t tags_code, magic, file_end;
    Span body, properties;
    if (argument_count("pack_put", count, 16) < 0 || bytes_argument(arguments[2], &body) < 0 ||
        bytes_argument(arguments[3], &properties) < 0)
        return NULL;
    PyObject *touched = arguments[15];
    if (!PyObject_TypeCheck(arguments[0], (PyTypeObject *)state->queue_type) ||
        !PyList_CheckExact(touched)) {
        PyErr_SetString(PyExc_TypeError, "pack_put() takes a QueueState and a list");
        return NULL;
    }
    Queue *queue = (Queue *)arguments[0];
    if (queue->topic_field == NULL || queue->unit_size != UNIT_SIZE ||
        !number_of(queue->magic, INT32_MIN, INT32_MAX, &magic) || (uint32_t)magic != MAGIC_V1 ||
        properties.size > PROPERTIES_SIZE_MAX || needs_pure_record(properties) ||
        body.size > INT32_MAX / 2 || !number_of(arguments[13], -1, INT64_MAX / 2, &file_end) ||
        !read_record(arguments, queue, &record, &tags_code))
        Py_RETURN_NONE;
    record.queue_offset = (uint64_t)queue->next_offset;
    record.body = body;
    record.properties = properties;
    record.added = (Span){properties.bytes, 0};
    int64_t room = file_end - (int64_t)record.physical_offset - 8; /* for a blank after it */
    if ((int64_t)record_size(&record) > room)
        Py_RETURN_NONE;
    PyObject *packed = new_bytes(record_size(&record));
    if (packed == NULL)
        return NULL;
    write_record(state, bytes_of(packed), &record);
    Py_ssize_t touched_count = PyList_GET_SIZE(touched);
    if (append_unit(queue, &record, tags_code, touched) < 0) {
        undo_touched(touched, touched_count);
        Py_CLEAR(packed);
    }
    return packed;
}
