/* Runs of deliveries: stored delayed messages that are due, stored again where they were sent to.

   A run is the records at a position that are plain (messages.c), undamaged, and for existing
   queues of topics that Python has allowed before. The first other record ends it.

   Pure Python: `ScheduleMessageService._deliver_one`. */
#include "native.h"

/* The queue that the message was sent to. */
static Outcome
find_real_place(const Run *run, PyObject *topics, Put *put)
{
    Span topic = find_value(put->record.properties, TEXT("REAL_TOPIC"));
    Span text = find_value(put->record.properties, TEXT("REAL_QID"));
    uint64_t queue_id;
    if (topic.bytes == NULL || !is_ascii(topic) || !read_decimal(text, QUEUE_ID_MAX, &queue_id))
        return NOT_FOR_ME;
    PyObject *name = PyUnicode_FromStringAndSize((const char *)topic.bytes, (Py_ssize_t)topic.size);
    if (name == NULL)
        return FAILED;
    int is_allowed = PySet_Contains(topics, name);
    Outcome found = is_allowed < 0 ? FAILED : NOT_FOR_ME;
    if (is_allowed == 1)
        found = find_queue(run, name, (uint32_t)queue_id, put);
    Py_DECREF(name);
    return found;
}

/* Read a stored record into `put`. USUAL: it belongs to the run; NOT_FOR_ME: it ends the run. The
   caller releases `put` unless it belongs to the run. */
static Outcome
add_delivery(Run *run, PyObject *topics, int64_t body_size_max, const PlainRecord *stored, Put *put)
{
    const uint8_t *head = stored->head;
    uint32_t sys_flag = load_u32(head + 36);
    /* A plain record is not compressed, and may keep the type of an earlier compression. */
    if ((sys_flag & ~COMPRESSION_TYPE_MASK) != 0 || (int64_t)stored->body.size > body_size_max ||
        stored->properties.size == 0 || needs_pure_record(stored->properties) ||
        (crc32_of(run->state, stored->body) & 0x7FFFFFFF) != load_u32(head + 8))
        return NOT_FOR_ME;
    put->keys = find_keys(stored->properties);
    if (!are_ascii(&put->keys))
        return NOT_FOR_ME;
    put->tags_code = (int32_t)java_hash(0, put->keys.tags);
    put->record = (Record){
        .flag = load_u32(head + 16),
        .sys_flag = sys_flag,
        .born_ms = load_u64(head + 40),
        .born_host = head + 48,
        .store_host = head + 64,
        .reconsume_times = load_u32(head + 72),
        .body = stored->body,
        .properties = stored->properties,
        .added = {stored->properties.bytes, 0},
    };
    Outcome found = find_real_place(run, topics, put);
    return found == USUAL ? place_put(run, put) : found;
}

/* Read records until one ends the run. Returns the bytes read, or -1 with an exception set. */
static Py_ssize_t
read_run(Run *run, PyObject *topics, int64_t body_size_max, Span data)
{
    Py_ssize_t position = 0;
    PlainRecord stored;
    while (run->count < RUN_MAX && next_record(data, &stored)) {
        Put *put = next_put(run);
        if (put == NULL)
            return -1;
        Outcome added = add_delivery(run, topics, body_size_max, &stored, put);
        if (added != USUAL) {
            release_put(put);
            if (added == FAILED)
                return -1;
            break;
        }
        data.bytes += stored.size;
        data.size -= stored.size;
        position += (Py_ssize_t)stored.size;
    }
    return position;
}

/* (bytes of the records read, number of messages, new records, index entries) */
static PyObject *
write_run(const Run *run, Py_ssize_t position)
{
    Buffer entries = {NULL, 0, 0};
    PyObject *packed = NULL, *records = write_records(run);
    int failed = records == NULL;
    for (Py_ssize_t at = 0; !failed && at < run->count; at++)
        failed = add_entries_of(&entries, &run->puts[at]) < 0;
    if (!failed)
        packed = Py_BuildValue("(nnOy#)", position, run->count, records,
                               entries.bytes ? (const char *)entries.bytes : "",
                               (Py_ssize_t)entries.size);
    Py_XDECREF(records);
    buffer_free(&entries);
    return packed;
}

static PyObject *
pack_run(Run *run, PyObject *topics, int64_t body_size_max, Span data, PyObject *touched)
{
    Py_ssize_t position = read_run(run, topics, body_size_max, data);
    if (position < 0)
        return NULL;
    if (run->count == 0)
        Py_RETURN_NONE;
    Py_ssize_t touched_count = PyList_GET_SIZE(touched);
    if (append_units(run, touched) < 0)
        return NULL;
    PyObject *packed = write_run(run, position);
    if (packed == NULL)
        undo_units(run, touched, touched_count);
    return packed;
}

/* pack_deliveries(queues, topics, body_size_max, data, position, store_ms, physical_offset,
                   file_end, touched) -> None: not for me, or what `write_run` returns */
PyObject *
pack_deliveries(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    Run run = {.state = state_of(module)};
    Span data;
    int64_t body_size_max, position;
    if (argument_count("pack_deliveries", count, 9) < 0 || bytes_argument(arguments[3], &data) < 0)
        return NULL;
    PyObject *topics = arguments[1], *touched = arguments[8];
    run.queues = arguments[0];
    if (!PyDict_CheckExact(run.queues) || !PySet_Check(topics) || !PyList_CheckExact(touched)) {
        PyErr_SetString(PyExc_TypeError, "pack_deliveries() takes a dict, a set and a list");
        return NULL;
    }
    if (!number_of(arguments[2], 0, INT64_MAX, &body_size_max) ||
        !number_of(arguments[4], 0, (int64_t)data.size, &position) ||
        !number_of(arguments[5], 0, INT64_MAX / 2, &run.store_ms) ||
        !number_of(arguments[6], 0, INT64_MAX / 2, &run.physical_offset) ||
        !number_of(arguments[7], -1, INT64_MAX / 2, &run.file_end))
        Py_RETURN_NONE;
    data.bytes += position;
    data.size -= (size_t)position;
    PyObject *packed = pack_run(&run, topics, body_size_max, data, touched);
    release_run(&run);
    return packed;
}
