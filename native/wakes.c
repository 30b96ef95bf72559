/* Waking of held pulls: from the keys of queues with new messages to the answers.

   A pull is woken here if it is alone in its queue, wants all messages, and finds them in memory and
   in one file of the log, as nearly all do. The first other pull that Python would answer directly
   ends it, so that the answers of a connection have the same order.

   Pure Python: `PullRequestHoldService.notify_messages`, `PullMessageProcessor._resume`,
   `MessageReader._newest` and `_collect_recent`. */
#include "native.h"

#define CHANNELS_MAX 64 /* connections that one call answers */
#define ANSWER_SIZE_MAX (64 * 1024) /* larger ones are sent from the log without a copy */

/* The broker's tables and limits; see `WakeRules` in broker/pulling/pull_wakes.py. Borrowed. */
typedef struct {
    PyObject *held, *queues, *topics, *groups, *views;
    AnswerParts binary;
    JsonAnswerParts json;
    int64_t file_size, near, size_max, count_max, queue_file_count;
} Rules;

/* The answers to one connection. */
typedef struct {
    PyObject *channel;
    Buffer answers;
    Py_ssize_t count;
} Answered;

typedef struct {
    State *state;
    Rules rules;
    int64_t log_end, served;
    PyObject *gets; /* list of (topic@group, messages, bytes); strong */
    PyObject *error; /* the first exception, NULL: there was none; strong */
    int64_t error_count;
    Answered channels[CHANNELS_MAX];
    int channel_count;
} Waking;

/* What is read of a held pull; strong references. */
typedef struct {
    PyObject *pull, *channel, *terms, *topic, *group;
    int64_t opaque, serialize_type, queue_offset, count_max, size_max;
} HeldPull;

/* Records in one file of the log. */
typedef struct {
    const uint8_t *units;
    int64_t count, base, size;
} Found;

/* ---- what a pull wants ----------------------------------------------------------------- */

/* Whether the attribute is this object. */
static Outcome
attribute_is(PyObject *object, PyObject *name, PyObject *wanted)
{
    PyObject *value = PyObject_GetAttr(object, name);
    if (value == NULL)
        return FAILED;
    Py_DECREF(value);
    return value == wanted ? USUAL : NOT_FOR_ME;
}

static void
release_pull(HeldPull *pull)
{
    Py_CLEAR(pull->pull);
    Py_CLEAR(pull->channel);
    Py_CLEAR(pull->terms);
    Py_CLEAR(pull->topic);
    Py_CLEAR(pull->group);
}

/* The caller releases the pull. */
static Outcome
read_pull(const State *state, PyObject *held, HeldPull *pull)
{
    memset(pull, 0, sizeof *pull);
    if ((pull->pull = PyObject_GetAttr(held, state->pull)) == NULL)
        return FAILED;
    Outcome found = attribute_is(pull->pull, state->selector, Py_None);
    if (found != USUAL)
        return found;
    if ((pull->channel = PyObject_GetAttr(pull->pull, state->channel)) == NULL)
        return FAILED;
    found = attribute_is(pull->channel, state->closed, Py_False);
    if (found != USUAL)
        return found;
    if ((pull->terms = PyObject_GetAttr(pull->pull, state->terms)) == NULL ||
        (pull->topic = PyObject_GetAttr(pull->terms, state->topic)) == NULL ||
        (pull->group = PyObject_GetAttr(pull->terms, state->group)) == NULL)
        return FAILED;
    struct {
        PyObject *object, *name;
        int64_t low, high, *number;
    } numbers[] = {
        {pull->pull, state->opaque, INT32_MIN, INT32_MAX, &pull->opaque},
        {pull->pull, state->serialize_type, 0, 1, &pull->serialize_type},
        {pull->pull, state->queue_offset, 0, INT64_MAX - 1, &pull->queue_offset},
        {pull->terms, state->count_max, INT32_MIN, INT32_MAX, &pull->count_max},
        {pull->terms, state->size_max, 0, INT32_MAX, &pull->size_max},
    };
    for (size_t at = 0; at < sizeof numbers / sizeof numbers[0]; at++) {
        found = number_attribute(numbers[at].object, numbers[at].name, numbers[at].low,
                                 numbers[at].high, numbers[at].number);
        if (found != USUAL)
            return found;
    }
    return USUAL;
}

/* Whether a topic's or group's configuration in a table has the flag 0, or there is none. */
static Outcome
has_no_flag(PyObject *table, PyObject *key, PyObject *flag)
{
    int64_t zero;
    PyObject *entry = PyDict_GetItemWithError(table, key);
    if (entry == NULL)
        return PyErr_Occurred() ? FAILED : USUAL;
    Py_INCREF(entry);
    Outcome found = number_attribute(entry, flag, 0, 0, &zero);
    Py_DECREF(entry);
    return found;
}

/* ---- what its queue has ---------------------------------------------------------------- */

/* The records that a pull finds. */
static Outcome
find_records(const Waking *waking, const HeldPull *pull, const Queue *queue,
             const Py_buffer *units, Found *found)
{
    const Rules *rules = &waking->rules;
    int64_t from = pull->queue_offset, size = units->len / UNIT_SIZE;
    if (queue->min_offset < 0 || from < queue->min_offset || from < queue->cold_end ||
        queue->tail_offset < 0 || from < queue->tail_offset || from >= queue->max_offset ||
        queue->max_offset - queue->tail_offset > size)
        return NOT_FOR_ME;
    int64_t left = queue->max_offset - from;
    found->count = pull->count_max > 1 ? pull->count_max : 1;
    if (found->count > left)
        found->count = left;
    if (found->count > rules->count_max)
        found->count = rules->count_max > 1 ? rules->count_max : 1;
    /* A get does not go past the end of a queue's file. */
    if (from / rules->queue_file_count != (from + found->count - 1) / rules->queue_file_count)
        return NOT_FOR_ME;
    found->units = (const uint8_t *)units->buf + (from - queue->tail_offset) * UNIT_SIZE;
    found->base = -1;
    found->size = 0;
    for (int64_t at = 0; at < found->count; at++) {
        const uint8_t *unit = found->units + at * UNIT_SIZE;
        int64_t offset = (int64_t)load_u64(unit), record_size = (int32_t)load_u32(unit + 8);
        if (offset < 0 || offset < waking->log_end - rules->near || record_size <= 0 ||
            offset > waking->log_end - record_size)
            return NOT_FOR_ME;
        if (at == 0)
            found->base = offset - offset % rules->file_size;
        int64_t position = offset - found->base;
        found->size += record_size;
        if (position < 0 || position > rules->file_size - record_size ||
            found->size > ANSWER_SIZE_MAX || found->size > pull->size_max ||
            found->size > rules->size_max)
            return NOT_FOR_ME;
    }
    return USUAL;
}

/* ---- the answer ------------------------------------------------------------------------ */

/* Append the answer's header to a buffer, with room for the records; -1: no memory. */
static int
append_head(const Rules *rules, const HeldPull *pull, const Queue *queue, const Found *found,
            Buffer *answers)
{
    uint8_t digits[3][DECIMAL_SIZE];
    uint64_t numbers[3] = {(uint64_t)(pull->queue_offset + found->count),
                           (uint64_t)queue->min_offset, (uint64_t)queue->max_offset};
    Span values[3];
    for (int value = 0; value < 3; value++)
        values[value] = (Span){digits[value], write_decimal(digits[value], numbers[value])};
    size_t body_size = (size_t)found->size;
    if (pull->serialize_type == JSON) {
        if (add_json_answer(answers, &rules->json, (uint32_t)pull->opaque, values, body_size) < 0)
            return -1;
    } else {
        size_t size = answer_size(&rules->binary, values);
        if (buffer_reserve(answers, size) < 0)
            return -1;
        write_answer(answers->bytes + answers->size, &rules->binary, (uint32_t)pull->opaque,
                     values, body_size);
        answers->size += size;
    }
    return buffer_reserve(answers, body_size);
}

/* The answers to a connection; NULL: there are too many connections. */
static Answered *
answered_channel(Waking *waking, PyObject *channel)
{
    for (int at = waking->channel_count - 1; at >= 0; at--)
        if (waking->channels[at].channel == channel)
            return &waking->channels[at];
    if (waking->channel_count == CHANNELS_MAX)
        return NULL;
    Answered *answered = &waking->channels[waking->channel_count++];
    *answered = (Answered){.channel = Py_NewRef(channel)};
    return answered;
}

/* Append header and records. It is not for me if the file has no map. */
static Outcome
append_answer(Waking *waking, const HeldPull *pull, const Queue *queue, const Found *found,
              Buffer *answers)
{
    PyObject *base = PyLong_FromLongLong(found->base);
    if (base == NULL)
        return FAILED;
    PyObject *view = PyDict_GetItemWithError(waking->rules.views, base);
    Py_DECREF(base);
    if (view == NULL)
        return PyErr_Occurred() ? FAILED : NOT_FOR_ME;
    Py_buffer map;
    if (PyObject_GetBuffer(view, &map, PyBUF_SIMPLE) < 0)
        return FAILED;
    Outcome done = map.len >= waking->rules.file_size ? USUAL : NOT_FOR_ME;
    if (done == USUAL && append_head(&waking->rules, pull, queue, found, answers) < 0)
        done = FAILED;
    if (done == USUAL)
        for (int64_t at = 0; at < found->count; at++) {
            const uint8_t *unit = found->units + at * UNIT_SIZE;
            size_t size = load_u32(unit + 8);
            store_bytes(answers->bytes + answers->size,
                        (const uint8_t *)map.buf + ((int64_t)load_u64(unit) - found->base), size);
            answers->size += size;
        }
    PyBuffer_Release(&map);
    return done;
}

/* ---- waking ---------------------------------------------------------------------------- */

/* Count the exception that is set, and keep the first for Python to log; none is set any more. */
static void
keep_error(Waking *waking)
{
    PyObject *raised = take_raised();
    waking->error_count++;
    if (waking->error == NULL)
        waking->error = raised;
    else
        Py_XDECREF(raised);
}

/* Take a pull out of its queue; -1 with an exception set, and it is still there. */
static int
forget_pull(Waking *waking, PyObject *others, PyObject *held)
{
    PyObject *name = waking->state->queue, *queue = PyObject_GetAttr(held, name);
    if (queue == NULL || PyObject_SetAttr(held, name, Py_None) < 0) {
        Py_XDECREF(queue);
        return -1;
    }
    int failed = PyDict_DelItem(others, held);
    if (failed) {
        PyObject *raised = take_raised();
        if (PyObject_SetAttr(held, name, queue) < 0)
            keep_error(waking);
        raise_again(raised);
    }
    Py_DECREF(queue);
    return failed;
}

/* Note what a pull gets, for the statistics; -1 with an exception set. */
static int
note_get(const Waking *waking, PyObject *terms, const Found *found)
{
    PyObject *key = PyObject_GetAttr(terms, waking->state->offset_key);
    if (key == NULL)
        return -1;
    PyObject *get = Py_BuildValue("(OLL)", key, (long long)found->count, (long long)found->size);
    Py_DECREF(key);
    if (get == NULL)
        return -1;
    int failed = PyList_Append(waking->gets, get);
    Py_DECREF(get);
    return failed;
}

/* Answer the only pull of a queue. */
static Outcome
wake_pull(Waking *waking, PyObject *key, PyObject *others, PyObject *held)
{
    HeldPull pull;
    Queue *queue = NULL;
    Py_buffer units = {.obj = NULL};
    Found records;
    Answered *answered = NULL;
    Outcome found = read_pull(waking->state, held, &pull);
    if (found == USUAL)
        found = has_no_flag(waking->rules.topics, pull.topic, waking->state->topic_sys_flag);
    if (found == USUAL)
        found = has_no_flag(waking->rules.groups, pull.group, waking->state->group_sys_flag);
    if (found == USUAL)
        found = find_state(waking->state, waking->rules.queues, key, &queue);
    /* The export keeps the units where they are while they are read. */
    if (found == USUAL && export_units(queue, &units) < 0)
        found = FAILED;
    if (found == USUAL)
        found = find_records(waking, &pull, queue, &units, &records);
    if (found == USUAL)
        found = (answered = answered_channel(waking, pull.channel)) != NULL ? USUAL : NOT_FOR_ME;
    if (found == USUAL) {
        size_t before = answered->answers.size;
        found = append_answer(waking, &pull, queue, &records, &answered->answers);
        if (found == USUAL && forget_pull(waking, others, held) < 0)
            found = FAILED;
        /* The answer leaves even if it cannot be counted. */
        if (found == USUAL && note_get(waking, pull.terms, &records) < 0)
            keep_error(waking);
        if (found == USUAL) {
            answered->count++;
            waking->served += records.size;
        } else
            answered->answers.size = before;
    }
    if (units.obj != NULL)
        PyBuffer_Release(&units);
    Py_XDECREF(queue);
    release_pull(&pull);
    return found;
}

/* The pulls of a queue that may match any message, if it has no others; a strong reference. */
Outcome
only_others(const State *state, PyObject *queue, PyObject **others)
{
    PyObject *tagged = PyObject_GetAttr(queue, state->tagged);
    if (tagged == NULL)
        return FAILED;
    int has_none = PyDict_CheckExact(tagged) && PyDict_GET_SIZE(tagged) == 0;
    Py_DECREF(tagged);
    if (!has_none)
        return NOT_FOR_ME;
    *others = PyObject_GetAttr(queue, state->others);
    if (*others == NULL)
        return FAILED;
    return PyDict_CheckExact(*others) ? USUAL : NOT_FOR_ME;
}

/* What becomes of a queue that has new messages. */
typedef enum {
    WAKE_FAILED, /* an exception is set, and the queue is unchanged */
    WAKE_DONE,
    WAKE_LATER, /* Python does it after the direct ones */
    WAKE_REST,  /* Python does it, and all queues after it */
} Wake;

static Wake
wake_queue(Waking *waking, PyObject *key)
{
    const State *state = waking->state;
    PyObject *others = NULL, *queue = PyDict_GetItemWithError(waking->rules.held, key);
    if (queue == NULL)
        return PyErr_Occurred() ? WAKE_FAILED : WAKE_DONE;
    Py_INCREF(queue);
    Outcome found = only_others(state, queue, &others);
    Wake wake = found == FAILED ? WAKE_FAILED : WAKE_LATER;
    Py_ssize_t count = found == USUAL ? PyDict_GET_SIZE(others) : -1;
    if (count == 0)
        wake = WAKE_DONE;
    else if (count == 1) {
        PyObject *held = NULL;
        Py_ssize_t position = 0;
        PyDict_Next(others, &position, &held, NULL);
        Py_INCREF(held);
        found = attribute_is(queue, state->of_channels, Py_None);
        if (found == USUAL)
            found = wake_pull(waking, key, others, held);
        wake = found == USUAL ? WAKE_DONE : found == FAILED ? WAKE_FAILED : WAKE_REST;
        Py_DECREF(held);
    }
    Py_XDECREF(others);
    Py_DECREF(queue);
    return wake;
}

/* Wake the queues; returns those that Python must do, NULL with an exception set. */
static PyObject *
wake_queues(Waking *waking, PyObject *keys)
{
    PyObject *rest = PyList_New(0);
    Wake wake = WAKE_DONE;
    for (Py_ssize_t at = 0; rest != NULL && at < PyList_GET_SIZE(keys); at++) {
        PyObject *key = Py_NewRef(PyList_GET_ITEM(keys, at));
        if (wake != WAKE_REST)
            wake = wake_queue(waking, key);
        if (wake == WAKE_FAILED) { /* the answers so far must leave */
            keep_error(waking);
            wake = WAKE_REST;
        }
        if (wake != WAKE_DONE && PyList_Append(rest, key) < 0)
            Py_CLEAR(rest);
        Py_DECREF(key);
    }
    return rest;
}

/* [(channel, answers, number of them)] */
static PyObject *
answers_of(const Waking *waking)
{
    PyObject *answers = PyList_New(0);
    for (int at = 0; answers != NULL && at < waking->channel_count; at++) {
        const Answered *each = &waking->channels[at];
        if (each->count == 0)
            continue;
        PyObject *one = Py_BuildValue("(Oy#n)", each->channel, (const char *)each->answers.bytes,
                                      (Py_ssize_t)each->answers.size, each->count);
        if (one == NULL || PyList_Append(answers, one) < 0)
            Py_CLEAR(answers);
        Py_XDECREF(one);
    }
    return answers;
}

/* The rules from their tuple; -1 with an exception set. */
static int
read_rules(PyObject *tuple, Rules *rules)
{
    if (!PyTuple_Check(tuple) || PyTuple_GET_SIZE(tuple) != 12) {
        PyErr_SetString(PyExc_TypeError, "waking has twelve rules");
        return -1;
    }
    PyObject **tables[5] = {&rules->held, &rules->queues, &rules->topics, &rules->groups,
                            &rules->views};
    for (Py_ssize_t at = 0; at < 5; at++) {
        *tables[at] = PyTuple_GET_ITEM(tuple, at);
        if (!PyDict_Check(*tables[at])) {
            PyErr_SetString(PyExc_TypeError, "waking has rules of other types");
            return -1;
        }
    }
    if (answer_parts(PyTuple_GET_ITEM(tuple, 5), &rules->binary) < 0 ||
        json_answer_parts(PyTuple_GET_ITEM(tuple, 6), &rules->json) < 0)
        return -1;
    if (!number_of(PyTuple_GET_ITEM(tuple, 7), 1, INT64_MAX / 2, &rules->file_size) ||
        !number_of(PyTuple_GET_ITEM(tuple, 8), 0, INT64_MAX / 2, &rules->near) ||
        !number_of(PyTuple_GET_ITEM(tuple, 9), 0, INT32_MAX, &rules->size_max) ||
        !number_of(PyTuple_GET_ITEM(tuple, 10), INT32_MIN, INT32_MAX, &rules->count_max) ||
        !number_of(PyTuple_GET_ITEM(tuple, 11), 1, INT32_MAX, &rules->queue_file_count)) {
        PyErr_SetString(PyExc_ValueError, "a limit of waking is out of range");
        return -1;
    }
    return 0;
}

/* wake_pulls(rules, keys, log_end) -> (answers, keys of queues that Python must do, bytes served,
   what the pulls got, the first exception or None, the number of exceptions) */
PyObject *
wake_pulls(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    Waking waking = {.state = state_of(module)};
    if (argument_count("wake_pulls", count, 3) < 0 || read_rules(arguments[0], &waking.rules) < 0)
        return NULL;
    if (!PyList_CheckExact(arguments[1])) {
        PyErr_SetString(PyExc_TypeError, "wake_pulls() takes a list of keys");
        return NULL;
    }
    if (!number_of(arguments[2], 0, INT64_MAX / 2, &waking.log_end)) {
        PyErr_SetString(PyExc_ValueError, "the log's end is out of range");
        return NULL;
    }
    waking.gets = PyList_New(0);
    if (waking.gets == NULL)
        return NULL;
    PyObject *woken = NULL, *rest = wake_queues(&waking, arguments[1]);
    PyObject *answers = rest == NULL ? NULL : answers_of(&waking);
    if (answers != NULL)
        woken = Py_BuildValue("(OOLOOL)", answers, rest, (long long)waking.served, waking.gets,
                              waking.error ? waking.error : Py_None,
                              (long long)waking.error_count);
    Py_XDECREF(answers);
    Py_XDECREF(rest);
    Py_DECREF(waking.gets);
    Py_XDECREF(waking.error);
    for (int at = 0; at < waking.channel_count; at++) {
        Py_DECREF(waking.channels[at].channel);
        buffer_free(&waking.channels[at].answers);
    }
    return woken;
}
