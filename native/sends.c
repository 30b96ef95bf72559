/* Runs of sends: from received frames to records, units, index entries and answers.

   A run is the frames at a position of received bytes that are plain sends or batches (send_header.c)
   for existing queues of open topics. The first other frame ends it. A delayed message goes to the
   queue of its delay level, with properties that say where it is delivered.

   Pure Python: `SendMessageProcessor._send`, `SendBatchProcessor.send_batch_message`,
   `inner_message.delayed`, `SendTurn.accept`, `SendTurn.accept_batch`. */
#include "native.h"

#define ID_PREFIX_MAX 40

/* The broker's rules; see `SendRules` in store/writing/run_appender.py. Borrowed. */
typedef struct {
    PyObject *topics, *checked, *delays_ms;
    Span added, store_host, id_prefix;
    AnswerParts answer;
    JsonAnswerParts json_answer;
    int64_t body_size_max;
} Rules;

typedef struct {
    Run run;
    Rules rules;
    Span born_host;
    Unescaped unescaped;
    int64_t wall_ms; /* the time of day, from which delays count */
    Py_ssize_t send_count, batch_count;
} Sends;

/* ---- the topic and the queue ----------------------------------------------------------- */

/* Whether sends to a queue of this topic need no check. */
static Outcome
is_open_topic(const Sends *sends, PyObject *topic, uint32_t queue_id)
{
    int checked = PySet_Contains(sends->rules.checked, topic);
    if (checked)
        return checked < 0 ? FAILED : NOT_FOR_ME;
    PyObject *config = PyDict_GetItemWithError(sends->rules.topics, topic);
    if (config == NULL)
        return PyErr_Occurred() ? FAILED : NOT_FOR_ME;
    int64_t queue_count;
    Py_INCREF(config);
    Outcome found =
        number_attribute(config, sends->run.state->write_queue_nums, 0, INT32_MAX, &queue_count);
    Py_DECREF(config);
    return found == USUAL && queue_id >= queue_count ? NOT_FOR_ME : found;
}

/* Append a property to text for which there is room. */
static uint8_t *
write_property(uint8_t *at, const char *head, size_t head_size, Span value)
{
    at = store_bytes(at, head, head_size);
    at = store_bytes(at, value.bytes, value.size);
    *at++ = 2;
    return at;
}

/* Replace the properties of a record by those of a waiting message: the property of the delay
   level moves to the end, and the topic and queue of its delivery follow. -1 with MemoryError. */
static int
change_properties(const SendHeader *header, uint32_t level, Put *put)
{
    Record *record = &put->record;
    uint8_t level_text[DECIMAL_SIZE], queue_text[DECIMAL_SIZE];
    Span level_value = {level_text, write_decimal(level_text, level)};
    Span queue_value = {queue_text, write_decimal(queue_text, header->queue_id)};
    size_t size = record->properties.size + separator_size(record) + record->added.size +
                  sizeof "DELAY1REAL_TOPIC1REAL_QID1" + level_value.size + header->topic.size +
                  queue_value.size + 3;
    uint8_t *at = put->changed = PyMem_Malloc(size);
    if (at == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    Span own = record->properties, item = header->delay;
    const uint8_t *own_end = own.bytes + own.size, *rest = item.bytes + item.size;
    at = store_bytes(at, own.bytes, (size_t)(item.bytes - own.bytes));
    if (rest < own_end) { /* the separator after the item goes with it */
        at = store_bytes(at, rest + 1, (size_t)(own_end - rest - 1));
        if (separator_size(record))
            *at++ = 2;
    }
    at = store_bytes(at, record->added.bytes, record->added.size);
    at = write_property(at, TEXT("DELAY\1"), level_value);
    at = write_property(at, TEXT("REAL_TOPIC\1"), header->topic);
    at = write_property(at, TEXT("REAL_QID\1"), queue_value);
    record->properties = (Span){put->changed, (size_t)(at - put->changed)};
    record->added = (Span){put->changed, 0};
    return 0;
}

/* Find the queue of a delay level, where the message waits. */
static Outcome
find_waiting_place(const Sends *sends, const SendHeader *header, Put *put)
{
    const Run *run = &sends->run;
    PyObject *delays_ms = sends->rules.delays_ms;
    Py_ssize_t level_max = PyTuple_GET_SIZE(delays_ms), level = (Py_ssize_t)header->delay_level;
    int64_t delay_ms;
    if (level > level_max)
        level = level_max;
    /* While the clock is behind the log, the due time is a property; `inner_message.delayed`. */
    if (level == 0 || sends->rules.added.size == 0 || sends->wall_ms < run->store_ms ||
        !number_of(PyTuple_GET_ITEM(delays_ms, level - 1), 0, INT64_MAX / 4, &delay_ms))
        return NOT_FOR_ME;
    Outcome found = find_queue(run, run->state->schedule_topic, (uint32_t)level - 1, put);
    if (found != USUAL)
        return found;
    if (change_properties(header, (uint32_t)level, put) < 0)
        return FAILED;
    put->tags_code = sends->wall_ms + delay_ms;
    /* The record of its delivery may be longer, and must fit into a file, too. */
    int64_t room = run->file_end - run->physical_offset - 8;
    return (int64_t)(record_size(&put->record) + header->topic.size) <= room ? USUAL : NOT_FOR_ME;
}

/* Whether a topic's messages are stored in its own queues, and by its plain name. */
static int
is_plain_topic(Span topic)
{
    return topic.size != 0 && topic.size <= TOPIC_SIZE_MAX_V1 && topic.bytes[0] != '%' &&
           !(topic.size >= 8 && memcmp(topic.bytes, "rmq_sys_", 8) == 0) &&
           is_ascii(topic);
}

static Outcome
find_place(const Sends *sends, const SendHeader *header, Put *put)
{
    Span topic = header->topic;
    if (!is_plain_topic(topic))
        return NOT_FOR_ME;
    PyObject *name = PyUnicode_FromStringAndSize((const char *)topic.bytes, (Py_ssize_t)topic.size);
    if (name == NULL)
        return FAILED;
    Outcome found = is_open_topic(sends, name, header->queue_id);
    if (found == USUAL && header->delay.bytes != NULL)
        found = find_waiting_place(sends, header, put);
    else if (found == USUAL) {
        put->tags_code = (int32_t)java_hash(0, header->keys.tags);
        found = find_queue(&sends->run, name, header->queue_id, put);
    }
    Py_DECREF(name);
    return found;
}

/* ---- step 1: read the frames ----------------------------------------------------------- */

/* Add the next message of a batch to the run. `shared` is what all its messages have. */
static Outcome
add_message(Run *run, const Put *shared, Span *body)
{
    Put *put = next_put(run);
    if (put == NULL)
        return FAILED;
    *put = *shared;
    Py_INCREF(put->queue);
    Outcome added = NOT_FOR_ME;
    if (next_message(body, &put->record) && needs_no_batch_rule(put->record.properties) &&
        !needs_pure_record(put->record.properties)) {
        put->keys = find_keys(put->record.properties);
        put->tags_code = (int32_t)java_hash(0, put->keys.tags);
        if (are_ascii(&put->keys))
            added = place_put(run, put);
    }
    if (added != USUAL)
        release_put(put);
    return added;
}

/* Add all messages of a batch to the run, or none of them. */
static Outcome
add_batch(Run *run, const Put *shared, Span body)
{
    Py_ssize_t first = run->count;
    int64_t physical_offset = run->physical_offset;
    size_t records_size = run->records_size;
    Outcome added = body.size ? USUAL : NOT_FOR_ME;
    while (added == USUAL && body.size)
        added = run->count - first < RUN_MAX ? add_message(run, shared, &body) : NOT_FOR_ME;
    if (added == USUAL) {
        run->puts[first].message_count = run->count - first;
        return USUAL;
    }
    while (run->count > first)
        release_put(&run->puts[--run->count]);
    run->physical_offset = physical_offset;
    run->records_size = records_size;
    return added;
}

/* Add what a frame sends to the run. NOT_FOR_ME: the frame ends it. */
static Outcome
add_send(Sends *sends, const Frame *frame)
{
    SendHeader header;
    if ((int64_t)frame->body.size > sends->rules.body_size_max)
        return NOT_FOR_ME;
    SendKind kind = read_send(frame, &sends->unescaped, &header);
    if (kind != PLAIN_SEND && kind != BATCH)
        return NOT_FOR_ME;
    Put *put = next_put(&sends->run);
    if (put == NULL)
        return FAILED;
    put->record = (Record){
        .sys_flag = header.sys_flag,
        .born_ms = header.born_ms,
        .born_host = sends->born_host.bytes,
        .store_host = sends->rules.store_host.bytes,
        .body = header.body,
        .properties = header.properties,
        .added = sends->rules.added,
    };
    put->keys = header.keys;
    put->opaque = header.opaque;
    put->queue_id = header.queue_id;
    put->is_json = header.is_json;
    put->is_oneway = header.is_oneway;
    Outcome added = find_place(sends, &header, put);
    if (added == USUAL && kind == BATCH) {
        Put shared = *put; /* the first message takes the place of `put` */
        put->queue = NULL;
        added = add_batch(&sends->run, &shared, header.body);
        release_put(&shared);
        sends->batch_count += added == USUAL;
        sends->send_count += added == USUAL;
        return added;
    }
    put->message_count = 1;
    if (added == USUAL)
        added = place_put(&sends->run, put);
    if (added != USUAL)
        release_put(put);
    sends->send_count += added == USUAL;
    return added;
}

/* Read frames until one ends the run. Returns the bytes read, or -1 with an exception set. */
static Py_ssize_t
read_run(Sends *sends, Span data, FrameLimits limits)
{
    Py_ssize_t position = 0;
    Frame frame;
    while (sends->run.count < RUN_MAX && next_frame(data, limits, &frame)) {
        Outcome added = add_send(sends, &frame);
        if (added == FAILED)
            return -1;
        if (added == NOT_FOR_ME)
            break;
        data.bytes += frame.size;
        data.size -= frame.size;
        position += (Py_ssize_t)frame.size;
    }
    return position;
}

/* ---- step 3: answers ------------------------------------------------------------------- */

/* The three values of an answer, as text. */
typedef struct {
    uint8_t queue_id[DECIMAL_SIZE], queue_offset[DECIMAL_SIZE];
    Span values[3];
} AnswerValues;

/* Write the ids of a send's messages, with commas between them; -1 with MemoryError set. */
static int
write_ids(const Sends *sends, const Put *puts, Buffer *ids)
{
    Span prefix = sends->rules.id_prefix;
    ids->size = 0;
    if (buffer_reserve(ids, (size_t)puts->message_count * (prefix.size + 17)) < 0)
        return -1;
    uint8_t *at = ids->bytes;
    for (Py_ssize_t done = 0; done < puts->message_count; done++) {
        if (done)
            *at++ = ',';
        at = store_bytes(at, prefix.bytes, prefix.size);
        at += write_hex(at, puts[done].record.physical_offset);
    }
    ids->size = (size_t)(at - ids->bytes);
    return 0;
}

static void
set_values(const Put *put, const Buffer *ids, AnswerValues *values)
{
    values->values[0] = (Span){ids->bytes, ids->size};
    values->values[1] = (Span){values->queue_id, write_decimal(values->queue_id, put->queue_id)};
    values->values[2] = (Span){values->queue_offset,
                               write_decimal(values->queue_offset, put->record.queue_offset)};
}

/* Write the answer to a send that wants one; -1 with MemoryError set. */
static int
add_answer(const Sends *sends, const Put *put, Buffer *ids, Buffer *answers)
{
    AnswerValues values;
    const Rules *rules = &sends->rules;
    if (put->is_oneway || put->message_count == 0)
        return 0;
    if (write_ids(sends, put, ids) < 0)
        return -1;
    set_values(put, ids, &values);
    if (put->is_json)
        return add_json_answer(answers, &rules->json_answer, put->opaque, values.values, 0);
    size_t size = answer_size(&rules->answer, values.values);
    if (buffer_reserve(answers, size) < 0)
        return -1;
    write_answer(answers->bytes + answers->size, &rules->answer, put->opaque, values.values, 0);
    answers->size += size;
    return 0;
}

/* Write entries and answers of all sends; -1 with MemoryError set. */
static int
write_entries_and_answers(const Sends *sends, Buffer *entries, Buffer *answers)
{
    Buffer ids = {NULL, 0, 0};
    int failed = 0;
    for (Py_ssize_t at = 0; at < sends->run.count && !failed; at++) {
        const Put *put = &sends->run.puts[at];
        failed = add_entries_of(entries, put) < 0 || add_answer(sends, put, &ids, answers) < 0;
    }
    buffer_free(&ids);
    return failed ? -1 : 0;
}

/* (bytes of the run's frames, sends, batches among them, messages, records, answers, entries) */
static PyObject *
write_run(const Sends *sends, Py_ssize_t position)
{
    Buffer entries = {NULL, 0, 0}, answers = {NULL, 0, 0};
    PyObject *packed = NULL, *records = write_records(&sends->run);
    if (records != NULL && write_entries_and_answers(sends, &entries, &answers) == 0)
        packed = Py_BuildValue("(nnnnOy#y#)", position, sends->send_count, sends->batch_count,
                               sends->run.count, records,
                               answers.bytes ? (const char *)answers.bytes : "",
                               (Py_ssize_t)answers.size,
                               entries.bytes ? (const char *)entries.bytes : "",
                               (Py_ssize_t)entries.size);
    Py_XDECREF(records);
    buffer_free(&entries);
    buffer_free(&answers);
    return packed;
}

/* ---- the function ---------------------------------------------------------------------- */

/* The rules from their tuple; -1 with an exception set. */
static int
read_rules(PyObject *tuple, Sends *sends)
{
    Rules *rules = &sends->rules;
    if (!PyTuple_Check(tuple) || PyTuple_GET_SIZE(tuple) != 10) {
        PyErr_SetString(PyExc_TypeError, "a run has ten rules");
        return -1;
    }
    rules->topics = PyTuple_GET_ITEM(tuple, 0);
    rules->checked = PyTuple_GET_ITEM(tuple, 1);
    sends->run.queues = PyTuple_GET_ITEM(tuple, 2);
    rules->delays_ms = PyTuple_GET_ITEM(tuple, 9);
    if (!PyDict_CheckExact(rules->topics) || !PySet_Check(rules->checked) ||
        !PyDict_CheckExact(sends->run.queues) || !PyTuple_CheckExact(rules->delays_ms)) {
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
pack_run(Sends *sends, Span data, FrameLimits limits, PyObject *touched)
{
    Py_ssize_t position = read_run(sends, data, limits);
    if (position < 0)
        return NULL;
    if (sends->run.count == 0)
        Py_RETURN_NONE;
    Py_ssize_t touched_count = PyList_GET_SIZE(touched);
    if (append_units(&sends->run, touched) < 0)
        return NULL;
    PyObject *packed = write_run(sends, position);
    if (packed == NULL)
        undo_units(&sends->run, touched, touched_count);
    return packed;
}

/* pack_sends(rules, header_size_max, data, position, frame_size_max, born_host, store_ms,
              wall_ms, physical_offset, file_end, touched)
   -> None: not for me, or what `write_run` returns */
PyObject *
pack_sends(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    Sends sends = {.run = {.state = state_of(module)}};
    Run *run = &sends.run;
    Rules *rules = &sends.rules;
    Span data;
    int64_t header_size_max, frame_size_max, position;
    PyObject *touched;
    if (argument_count("pack_sends", count, 11) < 0 || read_rules(arguments[0], &sends) < 0 ||
        bytes_argument(arguments[2], &data) < 0 ||
        bytes_argument(arguments[5], &sends.born_host) < 0)
        return NULL;
    touched = arguments[10];
    if (!PyList_CheckExact(touched)) {
        PyErr_SetString(PyExc_TypeError, "pack_sends() appends to a list");
        return NULL;
    }
    if (!number_of(arguments[1], 0, INT32_MAX, &header_size_max) ||
        !number_of(arguments[3], 0, (int64_t)data.size, &position) ||
        !number_of(arguments[4], 0, INT32_MAX, &frame_size_max) ||
        !number_of(arguments[6], 0, INT64_MAX / 2, &run->store_ms) ||
        !number_of(arguments[7], 0, INT64_MAX / 2, &sends.wall_ms) ||
        !number_of(arguments[8], 0, INT64_MAX / 2, &run->physical_offset) ||
        !number_of(arguments[9], -1, INT64_MAX / 2, &run->file_end) ||
        sends.born_host.size != HOST_SIZE || rules->store_host.size != HOST_SIZE ||
        rules->id_prefix.size > ID_PREFIX_MAX || needs_pure_record(rules->added) ||
        find_bytes(rules->added, TEXT("UNIQ_KEY\1")) || find_bytes(rules->added, TEXT("KEYS\1")) ||
        find_bytes(rules->added, TEXT("DELAY\1")))
        Py_RETURN_NONE;
    data.bytes += position;
    data.size -= (size_t)position;
    sends.unescaped.size_max = data.size;
    FrameLimits limits = {(size_t)frame_size_max, (size_t)header_size_max};
    PyObject *packed = pack_run(&sends, data, limits, touched);
    release_run(run);
    PyMem_Free(sends.unescaped.bytes);
    return packed;
}
