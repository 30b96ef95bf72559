/* Runs of sends: from received frames to records, units, index entries and answers.

   A run is the frames at a position of received bytes that are plain sends (send_header.c) for
   existing queues of open topics. The first other frame ends it.
   Three steps, so that a run is stored completely or not at all: read all frames and look up their
   queues; append the units; write records, entries and answers. A failure undoes the second.

   Pure Python: `SendMessageProcessor._send`, `MessageAppender.put_message`, `SendTurn.accept`. */
#include "native.h"

#define RUN_MAX 4096 /* sends: what a run takes to remember is bounded, and so is the turn */
#define ID_PREFIX_MAX 40

/* A send of the run. */
typedef struct {
    SendHeader header;
    PyObject *queue, *topic_field, *next_offset; /* strong; `next_offset` once its unit is there */
    uint32_t topic_hash;
    uint64_t physical_offset, queue_offset;
} Send;

/* The broker's rules; see `SendRules` in store/writing/run_appender.py. Borrowed. */
typedef struct {
    PyObject *topics, *checked, *queues;
    Span added, store_host, id_prefix;
    AnswerParts answer;
    JsonAnswerParts json_answer;
    int64_t body_size_max;
} Rules;

typedef struct {
    State *state;
    Rules rules;
    Span born_host;
    int64_t store_ms, physical_offset, file_end;
    Send *sends;
    Py_ssize_t count, capacity;
    size_t records_size;
    Unescaped unescaped;
} Run;

/* ---- the topic and the queue ----------------------------------------------------------- */

/* Whether sends to a queue of this topic need no check: 1, 0, or -1 with an exception set. */
static int
is_open_topic(const Run *run, PyObject *topic, uint32_t queue_id)
{
    int checked = PySet_Contains(run->rules.checked, topic);
    if (checked)
        return checked < 0 ? -1 : 0;
    PyObject *config = PyDict_GetItemWithError(run->rules.topics, topic);
    if (config == NULL)
        return PyErr_Occurred() ? -1 : 0;
    int64_t queue_count;
    Py_INCREF(config);
    int found = number_attribute(config, run->state->write_queue_nums, 0, INT32_MAX, &queue_count);
    Py_DECREF(config);
    return found == 1 ? queue_id < queue_count : found;
}

/* Look up the queue, and copy what a record needs of it: 1, 0, or -1 with an exception set. */
static int
find_queue(const Run *run, PyObject *topic, Send *send)
{
    const State *state = run->state;
    PyObject *queue_id = PyLong_FromUnsignedLong(send->header.queue_id);
    if (queue_id == NULL)
        return -1;
    PyObject *key = PyTuple_Pack(2, topic, queue_id);
    Py_DECREF(queue_id);
    if (key == NULL)
        return -1;
    PyObject *queue = PyDict_GetItemWithError(run->rules.queues, key);
    Py_XINCREF(queue);
    Py_DECREF(key);
    if (queue == NULL)
        return PyErr_Occurred() ? -1 : 0;
    send->queue = queue; /* released with the run */
    int64_t magic, topic_hash;
    int found = number_attribute(queue, state->magic, INT32_MIN, INT32_MAX, &magic);
    if (found == 1)
        found = number_attribute(queue, state->topic_hash, 0, UINT32_MAX, &topic_hash);
    if (found != 1)
        return found;
    send->topic_hash = (uint32_t)topic_hash;
    send->topic_field = PyObject_GetAttr(queue, state->topic_field);
    if (send->topic_field == NULL)
        return -1;
    return (uint32_t)magic == MAGIC_V1 && PyBytes_CheckExact(send->topic_field);
}

static int
find_place(const Run *run, Send *send)
{
    Span topic = send->header.topic;
    if (topic.size == 0 || topic.size > 127 || topic.bytes[0] == '%' ||
        (topic.size >= 8 && memcmp(topic.bytes, "rmq_sys_", 8) == 0) ||
        !is_ascii(topic.bytes, topic.size))
        return 0;
    PyObject *name = PyUnicode_FromStringAndSize((const char *)topic.bytes, (Py_ssize_t)topic.size);
    if (name == NULL)
        return -1;
    int found = is_open_topic(run, name, send->header.queue_id);
    if (found == 1)
        found = find_queue(run, name, send);
    Py_DECREF(name);
    return found;
}

/* ---- step 1: read the frames ----------------------------------------------------------- */

static Record
record_of(const Run *run, const Send *send)
{
    return (Record){
        .queue_id = send->header.queue_id,
        .sys_flag = send->header.sys_flag,
        .queue_offset = send->queue_offset,
        .physical_offset = send->physical_offset,
        .born_ms = send->header.born_ms,
        .store_ms = (uint64_t)run->store_ms,
        .born_host = run->born_host.bytes,
        .store_host = run->rules.store_host.bytes,
        .body = send->header.body,
        .topic_field = span_of(send->topic_field),
        .properties = send->header.properties,
        .added = run->rules.added,
    };
}

/* Read a frame into `send`, whose references the caller releases: 1: it belongs to the run;
   0: it ends the run; -1: an exception is set. */
static int
add_send(Run *run, const Frame *frame, Send *send)
{
    if ((int64_t)frame->body.size > run->rules.body_size_max ||
        !read_send(frame, &run->unescaped, &send->header))
        return 0;
    int found = find_place(run, send);
    if (found != 1)
        return found;
    Record record = record_of(run, send);
    size_t properties_size =
        record.properties.size + separator_size(&record) + record.added.size;
    size_t size = record_size(&record);
    int64_t room = run->file_end - run->physical_offset - 8; /* for a blank after it */
    if (properties_size > PROPERTIES_SIZE_MAX || size > INT32_MAX || (int64_t)size > room)
        return 0;
    send->physical_offset = (uint64_t)run->physical_offset;
    run->physical_offset += (int64_t)size;
    run->records_size += size;
    return 1;
}

static void
release_send(Send *send)
{
    Py_CLEAR(send->queue);
    Py_CLEAR(send->topic_field);
    Py_CLEAR(send->next_offset);
}

static int
make_room(Run *run)
{
    if (run->count < run->capacity)
        return 0;
    Py_ssize_t capacity = run->capacity ? 4 * run->capacity : 64;
    Send *sends = PyMem_Realloc(run->sends, (size_t)capacity * sizeof *sends);
    if (sends == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    run->sends = sends;
    run->capacity = capacity;
    return 0;
}

/* Read frames until one ends the run. Returns the bytes read, or -1 with an exception set. */
static Py_ssize_t
read_run(Run *run, Span data, FrameLimits limits)
{
    Py_ssize_t position = 0;
    Frame frame;
    while (run->count < RUN_MAX && next_frame(data, limits, &frame)) {
        if (make_room(run) < 0)
            return -1;
        Send *send = &run->sends[run->count];
        memset(send, 0, sizeof *send);
        int usual = add_send(run, &frame, send);
        if (usual != 1) {
            release_send(send);
            if (usual < 0)
                return -1;
            break;
        }
        run->count++;
        data.bytes += frame.size;
        data.size -= frame.size;
        position += (Py_ssize_t)frame.size;
    }
    return position;
}

/* ---- step 2: append the units ---------------------------------------------------------- */

/* The queue's tail; NULL with an exception set. */
static PyObject *
tail_of(const Run *run, PyObject *queue)
{
    PyObject *tail = PyObject_GetAttr(queue, run->state->tail);
    if (tail != NULL && !PyByteArray_CheckExact(tail)) {
        Py_DECREF(tail);
        PyErr_SetString(PyExc_TypeError, "the tail of a queue is a bytearray");
        return NULL;
    }
    return tail;
}

/* Append a unit to the queue of a send; -1: an exception is set and nothing has changed. */
static int
append_unit(Run *run, Send *send, PyObject *touched)
{
    const State *state = run->state;
    int64_t next, committed;
    int found = number_attribute(send->queue, state->next_offset, 0, INT64_MAX - 1, &next);
    if (found == 1)
        found = number_attribute(send->queue, state->committed_offset, 0, INT64_MAX, &committed);
    if (found != 1) {
        if (found == 0)
            PyErr_SetString(PyExc_ValueError, "a queue's offset is out of range");
        return -1;
    }
    Record record = record_of(run, send);
    int64_t tags_code = (int32_t)java_hash(0, send->header.keys.tags);
    PyObject *before = PyLong_FromLongLong(next), *after = PyLong_FromLongLong(next + 1);
    PyObject *tail = tail_of(run, send->queue);
    int failed = before == NULL || after == NULL || tail == NULL;
    if (!failed && next == committed)
        failed = PyList_Append(touched, send->queue) < 0; /* `undo` shortens the list */
    if (!failed) {
        Py_ssize_t size = PyByteArray_GET_SIZE(tail);
        failed = PyByteArray_Resize(tail, size + UNIT_SIZE) < 0;
        if (!failed) {
            write_unit((uint8_t *)PyByteArray_AS_STRING(tail) + size, send->physical_offset,
                       record_size(&record), tags_code);
            failed = PyObject_SetAttr(send->queue, state->next_offset, after) < 0;
            if (failed)
                PyByteArray_Resize(tail, size);
        }
    }
    if (!failed) {
        send->queue_offset = (uint64_t)next;
        send->next_offset = before;
        before = NULL;
    }
    Py_XDECREF(before);
    Py_XDECREF(after);
    Py_XDECREF(tail);
    return failed ? -1 : 0;
}

/* Undo `append_unit` of all sends that have it, last first; the exception that is set stays. */
static void
undo_units(Run *run, PyObject *touched, Py_ssize_t touched_count)
{
#if PY_VERSION_HEX >= 0x030C0000
    PyObject *raised = PyErr_GetRaisedException();
#else
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
#endif
    for (Py_ssize_t at = run->count - 1; at >= 0; at--) {
        Send *send = &run->sends[at];
        if (send->next_offset == NULL)
            continue;
        PyObject *tail = tail_of(run, send->queue);
        if (tail == NULL || PyByteArray_Resize(tail, PyByteArray_GET_SIZE(tail) - UNIT_SIZE) < 0 ||
            PyObject_SetAttr(send->queue, run->state->next_offset, send->next_offset) < 0)
            PyErr_WriteUnraisable(send->queue);
        Py_XDECREF(tail);
    }
    if (PyList_SetSlice(touched, touched_count, PyList_GET_SIZE(touched), NULL) < 0)
        PyErr_WriteUnraisable(touched);
#if PY_VERSION_HEX >= 0x030C0000
    PyErr_SetRaisedException(raised);
#else
    PyErr_Restore(type, value, traceback);
#endif
}

/* ---- step 3: records, index entries, answers ------------------------------------------- */

/* The three values of an answer, as text. */
typedef struct {
    uint8_t id[ID_PREFIX_MAX + 16], queue_id[20], queue_offset[20];
    Span values[3];
} AnswerValues;

static void
set_values(const Run *run, const Send *send, AnswerValues *values)
{
    uint8_t *at = store_bytes(values->id, run->rules.id_prefix.bytes, run->rules.id_prefix.size);
    at += write_hex(at, send->physical_offset);
    values->values[0] = (Span){values->id, (size_t)(at - values->id)};
    values->values[1] =
        (Span){values->queue_id, write_decimal(values->queue_id, send->header.queue_id)};
    values->values[2] =
        (Span){values->queue_offset, write_decimal(values->queue_offset, send->queue_offset)};
}

/* Write the answer to a send that wants one; -1 with MemoryError set. */
static int
add_answer(const Run *run, const Send *send, Buffer *answers)
{
    AnswerValues values;
    const Rules *rules = &run->rules;
    if (send->header.is_oneway)
        return 0;
    set_values(run, send, &values);
    if (send->header.is_json)
        return add_json_answer(answers, &rules->json_answer, send->header.opaque, values.values, 0);
    size_t size = answer_size(&rules->answer, values.values);
    if (buffer_reserve(answers, size) < 0)
        return -1;
    write_answer(answers->bytes + answers->size, &rules->answer, send->header.opaque,
                 values.values, 0);
    answers->size += size;
    return 0;
}

/* Write entries and answers of all sends; -1 with MemoryError set. */
static int
write_entries_and_answers(const Run *run, Buffer *entries, Buffer *answers)
{
    for (Py_ssize_t at = 0; at < run->count; at++) {
        const Send *send = &run->sends[at];
        if (add_entries(entries, send->topic_hash, &send->header.keys,
                        (int64_t)send->physical_offset, run->store_ms) < 0 ||
            add_answer(run, send, answers) < 0)
            return -1;
    }
    return 0;
}

/* (bytes of the run's frames, number of sends, records, answers, index entries) */
static PyObject *
write_run(const Run *run, Py_ssize_t position)
{
    Buffer entries = {NULL, 0, 0}, answers = {NULL, 0, 0};
    PyObject *packed = NULL, *records = new_bytes(run->records_size);
    if (records != NULL && write_entries_and_answers(run, &entries, &answers) == 0) {
        uint8_t *at = bytes_of(records);
        for (Py_ssize_t done = 0; done < run->count; done++) {
            Record record = record_of(run, &run->sends[done]);
            at = write_record(run->state, at, &record);
        }
        packed = Py_BuildValue("(nnOy#y#)", position, run->count, records,
                               answers.bytes ? (const char *)answers.bytes : "",
                               (Py_ssize_t)answers.size,
                               entries.bytes ? (const char *)entries.bytes : "",
                               (Py_ssize_t)entries.size);
    }
    Py_XDECREF(records);
    buffer_free(&entries);
    buffer_free(&answers);
    return packed;
}

/* ---- the function ---------------------------------------------------------------------- */

/* The rules from their tuple; -1 with an exception set. */
static int
read_rules(PyObject *tuple, Rules *rules)
{
    if (!PyTuple_Check(tuple) || PyTuple_GET_SIZE(tuple) != 9) {
        PyErr_SetString(PyExc_TypeError, "a run has nine rules");
        return -1;
    }
    rules->topics = PyTuple_GET_ITEM(tuple, 0);
    rules->checked = PyTuple_GET_ITEM(tuple, 1);
    rules->queues = PyTuple_GET_ITEM(tuple, 2);
    if (!PyDict_CheckExact(rules->topics) || !PySet_Check(rules->checked) ||
        !PyDict_CheckExact(rules->queues)) {
        PyErr_SetString(PyExc_TypeError, "a run has rules of other types");
        return -1;
    }
    if (bytes_argument(PyTuple_GET_ITEM(tuple, 3), &rules->added) < 0 ||
        bytes_argument(PyTuple_GET_ITEM(tuple, 4), &rules->store_host) < 0 ||
        bytes_argument(PyTuple_GET_ITEM(tuple, 5), &rules->id_prefix) < 0 ||
        answer_parts(PyTuple_GET_ITEM(tuple, 6), &rules->answer) < 0 ||
        json_answer_parts(PyTuple_GET_ITEM(tuple, 7), &rules->json_answer) < 0)
        return -1;
    if (!number_of(PyTuple_GET_ITEM(tuple, 8), 0, INT64_MAX, &rules->body_size_max)) {
        PyErr_SetString(PyExc_ValueError, "the limit of bodies is out of range");
        return -1;
    }
    return 0;
}

static PyObject *
pack_run(Run *run, Span data, FrameLimits limits, PyObject *touched)
{
    Py_ssize_t position = read_run(run, data, limits);
    if (position < 0)
        return NULL;
    if (run->count == 0)
        Py_RETURN_NONE;
    Py_ssize_t touched_count = PyList_GET_SIZE(touched);
    PyObject *packed = NULL;
    Py_ssize_t at = 0;
    while (at < run->count && append_unit(run, &run->sends[at], touched) == 0)
        at++;
    if (at == run->count)
        packed = write_run(run, position);
    if (packed == NULL)
        undo_units(run, touched, touched_count);
    return packed;
}

/* pack_sends(rules, header_size_max, data, position, frame_size_max, born_host, store_ms,
              physical_offset, file_end, touched) -> None: not for me, or what `write_run` returns */
PyObject *
pack_sends(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    Run run = {.state = state_of(module)};
    Span data;
    int64_t header_size_max, frame_size_max, position;
    PyObject *touched;
    if (argument_count("pack_sends", count, 10) < 0 || read_rules(arguments[0], &run.rules) < 0 ||
        bytes_argument(arguments[2], &data) < 0 || bytes_argument(arguments[5], &run.born_host) < 0)
        return NULL;
    touched = arguments[9];
    if (!PyList_CheckExact(touched)) {
        PyErr_SetString(PyExc_TypeError, "pack_sends() appends to a list");
        return NULL;
    }
    if (!number_of(arguments[1], 0, INT32_MAX, &header_size_max) ||
        !number_of(arguments[3], 0, (int64_t)data.size, &position) ||
        !number_of(arguments[4], 0, INT32_MAX, &frame_size_max) ||
        !number_of(arguments[6], 0, INT64_MAX, &run.store_ms) ||
        !number_of(arguments[7], 0, INT64_MAX / 2, &run.physical_offset) ||
        !number_of(arguments[8], -1, INT64_MAX / 2, &run.file_end) ||
        run.born_host.size != HOST_SIZE || run.rules.store_host.size != HOST_SIZE ||
        run.rules.id_prefix.size > ID_PREFIX_MAX || needs_pure_record(run.rules.added) ||
        find_bytes(run.rules.added, TEXT("UNIQ_KEY\1")) ||
        find_bytes(run.rules.added, TEXT("KEYS\1")))
        Py_RETURN_NONE;
    data.bytes += position;
    data.size -= (size_t)position;
    run.unescaped.size_max = data.size;
    FrameLimits limits = {(size_t)frame_size_max, (size_t)header_size_max};
    PyObject *packed = pack_run(&run, data, limits, touched);
    for (Py_ssize_t at = 0; at < run.count; at++)
        release_send(&run.sends[at]);
    PyMem_Free(run.sends);
    PyMem_Free(run.unescaped.bytes);
    return packed;
}
