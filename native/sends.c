/* Runs of sends: from received frames to records, units, index entries and answers.

   A run is the frames at the beginning of received bytes that are plain sends: SEND_MESSAGE or
   SEND_MESSAGE_V2, answered, with a binary header, for an existing queue of an open topic, with a
   unique key, and without any property that needs a rule. The first other frame ends it.
   Three steps, so that a run is stored completely or not at all: read all frames and look up their
   queues; append the units; write records, entries and answers. A failure undoes the second.

   Pure Python: `SendMessageProcessor._send`, `MessageAppender.put_message`, `SendTurn.accept`. */
#include "native.h"

#define SEND_MESSAGE 10
#define SEND_MESSAGE_V2 310
#define QUEUE_ID_MAX 1023
#define BORN_DIGITS 13
#define RUN_MAX 4096 /* sends: what a run takes to remember is bounded, and so is the turn */
#define ID_PREFIX_MAX 40

/* A send of the run. The spans are of the received bytes. */
typedef struct {
    PyObject *queue, *topic_field, *next_offset; /* strong; `next_offset` once its unit is there */
    Span body, properties;
    Keys keys;
    uint32_t opaque, queue_id, topic_hash;
    uint64_t born_ms, physical_offset, queue_offset;
} Send;

/* The broker's rules; see `SendRules` in store/writing/run_appender.py. Borrowed. */
typedef struct {
    PyObject *topics, *checked, *queues;
    Span added, store_host, id_prefix;
    AnswerParts answer;
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
} Run;

/* ---- reading a frame ------------------------------------------------------------------- */

/* The fields of a send's header; `bytes` is NULL where there is none. */
typedef struct {
    Span topic, queue_id, sys_flag, born, flag, properties, reconsume;
} Fields;

static int
equals(Span span, const char *text, size_t size)
{
    return span.size == size && memcmp(span.bytes, text, size) == 0;
}

/* Where a field with this name belongs; NULL: it does not matter. */
static Span *
field_place(Fields *fields, Span name, int letters)
{
    if (letters) {
        if (name.size != 1)
            return NULL;
        switch (name.bytes[0]) {
        case 'b': return &fields->topic;
        case 'e': return &fields->queue_id;
        case 'f': return &fields->sys_flag;
        case 'g': return &fields->born;
        case 'h': return &fields->flag;
        case 'i': return &fields->properties;
        case 'j': return &fields->reconsume;
        default: return NULL;
        }
    }
    if (equals(name, TEXT("topic")))
        return &fields->topic;
    if (equals(name, TEXT("queueId")))
        return &fields->queue_id;
    if (equals(name, TEXT("sysFlag")))
        return &fields->sys_flag;
    if (equals(name, TEXT("bornTimestamp")))
        return &fields->born;
    if (equals(name, TEXT("flag")))
        return &fields->flag;
    if (equals(name, TEXT("properties")))
        return &fields->properties;
    if (equals(name, TEXT("reconsumeTimes")))
        return &fields->reconsume;
    return NULL;
}

static int
read_fields(Span block, int letters, Fields *fields)
{
    Span name, value;
    memset(fields, 0, sizeof *fields);
    for (int seen = 0; block.size; seen++) {
        if (seen == 64 || !next_field(&block, &name, &value))
            return 0;
        Span *place = field_place(fields, name, letters);
        if (place != NULL)
            *place = value;
    }
    return 1;
}

static int
read_digits(Span text, uint64_t *number)
{
    *number = 0;
    for (size_t at = 0; at < text.size; at++) {
        if (text.bytes[at] < '0' || text.bytes[at] > '9')
            return 0;
        *number = *number * 10 + (uint64_t)(text.bytes[at] - '0');
    }
    return 1;
}

/* The numbers as in nearly all sends: the rest is for `read_numbers`. */
static int
read_usual_numbers(const Fields *fields, Send *send)
{
    uint64_t queue_id;
    Span text = fields->queue_id;
    if (!equals(fields->sys_flag, TEXT("0")) || !equals(fields->flag, TEXT("0")) ||
        (fields->reconsume.size && !equals(fields->reconsume, TEXT("0"))) ||
        fields->born.size != BORN_DIGITS || !read_digits(fields->born, &send->born_ms) ||
        text.size == 0 || text.size > 4 || (text.size > 1 && text.bytes[0] == '0') ||
        !read_digits(text, &queue_id) || queue_id > QUEUE_ID_MAX)
        return 0;
    send->queue_id = (uint32_t)queue_id;
    return 1;
}

/* `admission.is_special`, for properties that contain UNIQ_KEY and the byte after it. */
static int
is_special(Span properties)
{
    size_t underscores = 0;
    if (find_bytes(properties, TEXT("DELAY")))
        return 1;
    for (size_t at = 0; at < properties.size; at++)
        underscores += properties.bytes[at] == '_';
    return underscores != 1 && (find_bytes(properties, TEXT("TRAN")) ||
                                find_bytes(properties, TEXT("R_")) ||
                                find_bytes(properties, TEXT("L_")));
}

static int
has_usual_properties(Span properties)
{
    return properties.size && is_ascii(properties.bytes, properties.size) &&
           find_bytes(properties, TEXT("UNIQ_KEY\1")) && !is_special(properties) &&
           !needs_pure_record(properties) && !find_bytes(properties, TEXT("MSG_REGION\1")) &&
           !find_bytes(properties, TEXT("WAIT\1false"));
}

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
    PyObject *queue_id = PyLong_FromUnsignedLong(send->queue_id);
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
find_place(const Run *run, Span topic, Send *send)
{
    if (topic.size == 0 || topic.size > 127 || topic.bytes[0] == '%' ||
        (topic.size >= 8 && memcmp(topic.bytes, "rmq_sys_", 8) == 0) ||
        !is_ascii(topic.bytes, topic.size))
        return 0;
    PyObject *name = PyUnicode_FromStringAndSize((const char *)topic.bytes, (Py_ssize_t)topic.size);
    if (name == NULL)
        return -1;
    int found = is_open_topic(run, name, send->queue_id);
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
        .queue_id = send->queue_id,
        .queue_offset = send->queue_offset,
        .physical_offset = send->physical_offset,
        .born_ms = send->born_ms,
        .store_ms = (uint64_t)run->store_ms,
        .born_host = run->born_host.bytes,
        .store_host = run->rules.store_host.bytes,
        .body = send->body,
        .topic_field = span_of(send->topic_field),
        .properties = send->properties,
        .added = run->rules.added,
    };
}

/* Read a frame into `send`, whose references the caller releases: 1: it belongs to the run;
   0: it ends the run; -1: an exception is set. */
static int
read_send(Run *run, const Frame *frame, Send *send)
{
    Fields fields;
    uint16_t code = load_u16(frame->header);
    send->opaque = load_u32(frame->header + 5);
    send->body = frame->body;
    if ((code != SEND_MESSAGE && code != SEND_MESSAGE_V2) || load_u32(frame->header + 9) != 0 ||
        !read_fields(frame->fields, code == SEND_MESSAGE_V2, &fields) ||
        !read_usual_numbers(&fields, send) || !has_usual_properties(fields.properties) ||
        (int64_t)frame->body.size > run->rules.body_size_max)
        return 0;
    send->properties = fields.properties;
    send->keys = find_keys(fields.properties);
    int found = find_place(run, fields.topic, send);
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
read_run(Run *run, Span data, size_t frame_size_max, size_t header_size_max)
{
    Py_ssize_t position = 0;
    Frame frame;
    while (run->count < RUN_MAX && next_frame(data, frame_size_max, header_size_max, &frame)) {
        if (make_room(run) < 0)
            return -1;
        Send *send = &run->sends[run->count];
        memset(send, 0, sizeof *send);
        int usual = read_send(run, &frame, send);
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
    int64_t tags_code = (int32_t)java_hash(0, send->keys.tags);
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

size_t
write_decimal(uint8_t *at, uint64_t number)
{
    uint8_t digits[20];
    size_t size = 0;
    do
        digits[size++] = (uint8_t)('0' + number % 10);
    while (number /= 10);
    for (size_t digit = 0; digit < size; digit++)
        at[digit] = digits[size - 1 - digit];
    return size;
}

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
        (Span){values->queue_id, write_decimal(values->queue_id, send->queue_id)};
    values->values[2] =
        (Span){values->queue_offset, write_decimal(values->queue_offset, send->queue_offset)};
}

/* Write entries and answers of all sends; -1 with MemoryError set. */
static int
write_entries_and_answers(const Run *run, Buffer *entries, Buffer *answers)
{
    AnswerValues values;
    for (Py_ssize_t at = 0; at < run->count; at++) {
        const Send *send = &run->sends[at];
        if (add_entries(entries, send->topic_hash, &send->keys, (int64_t)send->physical_offset,
                        run->store_ms) < 0)
            return -1;
        set_values(run, send, &values);
        size_t size = answer_size(&run->rules.answer, values.values);
        if (buffer_reserve(answers, size) < 0)
            return -1;
        write_answer(answers->bytes + answers->size, &run->rules.answer, send->opaque,
                     values.values, 0);
        answers->size += size;
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
                               (const char *)answers.bytes, (Py_ssize_t)answers.size,
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
    if (!PyTuple_Check(tuple) || PyTuple_GET_SIZE(tuple) != 8) {
        PyErr_SetString(PyExc_TypeError, "a run has eight rules");
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
        answer_parts(PyTuple_GET_ITEM(tuple, 6), &rules->answer) < 0)
        return -1;
    if (!number_of(PyTuple_GET_ITEM(tuple, 7), 0, INT64_MAX, &rules->body_size_max)) {
        PyErr_SetString(PyExc_ValueError, "the limit of bodies is out of range");
        return -1;
    }
    return 0;
}

static PyObject *
pack_run(Run *run, Span data, size_t frame_size_max, size_t header_size_max, PyObject *touched)
{
    Py_ssize_t position = read_run(run, data, frame_size_max, header_size_max);
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

/* pack_sends(rules, header_size_max, data, frame_size_max, born_host, store_ms, physical_offset,
              file_end, touched) -> None: not for me, or what `write_run` returns */
PyObject *
pack_sends(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    Run run = {.state = state_of(module)};
    Span data;
    int64_t header_size_max, frame_size_max;
    PyObject *touched;
    if (argument_count("pack_sends", count, 9) < 0 || read_rules(arguments[0], &run.rules) < 0 ||
        bytes_argument(arguments[2], &data) < 0 || bytes_argument(arguments[4], &run.born_host) < 0)
        return NULL;
    touched = arguments[8];
    if (!PyList_CheckExact(touched)) {
        PyErr_SetString(PyExc_TypeError, "pack_sends() appends to a list");
        return NULL;
    }
    if (!number_of(arguments[1], 0, INT32_MAX, &header_size_max) ||
        !number_of(arguments[3], 0, INT32_MAX, &frame_size_max) ||
        !number_of(arguments[5], 0, INT64_MAX, &run.store_ms) ||
        !number_of(arguments[6], 0, INT64_MAX / 2, &run.physical_offset) ||
        !number_of(arguments[7], -1, INT64_MAX / 2, &run.file_end) ||
        run.born_host.size != HOST_SIZE || run.rules.store_host.size != HOST_SIZE ||
        run.rules.id_prefix.size > ID_PREFIX_MAX || needs_pure_record(run.rules.added) ||
        find_bytes(run.rules.added, TEXT("UNIQ_KEY\1")) ||
        find_bytes(run.rules.added, TEXT("KEYS\1")))
        Py_RETURN_NONE;
    PyObject *packed =
        pack_run(&run, data, (size_t)frame_size_max, (size_t)header_size_max, touched);
    for (Py_ssize_t at = 0; at < run.count; at++)
        release_send(&run.sends[at]);
    PyMem_Free(run.sends);
    return packed;
}
