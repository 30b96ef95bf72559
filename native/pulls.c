/* Runs of pulls: frames whose headers are those of a template, but for a few numbers.

   A pull of a consumer that has kept up is held at once; from the first other one on, pulls become
   commands for Python. `pull_templates.py` makes the templates, and the headers may be binary or in
   JSON: a template is pieces of bytes with a number between each two.

   Pure Python: `FrameDecoder`, `PullMessageProcessor.pull_message`, `PullRequestHoldService.hold`. */
#include "native.h"

#define PIECES_MAX 8
#define NUMBER_MAX 999999999 /* queue ids and opaques; larger ones are for Python */
#define OFFSET_MAX 999999999999999999

/* The numbers of a header; the letters are those of `pull_templates.Slot`. */
typedef struct {
    int64_t opaque, queue_id, queue_offset, commit_offset;
} Numbers;

/* Borrowed. */
typedef struct {
    Span pieces[PIECES_MAX];
    Span slots;
    int64_t code, flag, language, version, serialize_type;
    PyObject *series;
} Template;

/* What a pull needs to be held; see `pull_runs.Holding`. Borrowed. */
typedef struct {
    PyObject *queues, *held_queues, *channel, *terms, *topic, *deadline, *pull_offsets,
        *commit_offsets; /* the last: None, the pulls commit nothing */
    int64_t queue_count, queue_pulls_max, count_max;
} Holding;

typedef struct {
    State *state;
    PyObject *command_class, *fields_class, *pull_class, *held_class;
    Template template;
    Holding holding;
    int may_hold;
    PyObject *commands, *held;
} Pulls;

/* ---- reading a header ------------------------------------------------------------------ */

/* Cut a number off a text; 0: there is none, or it is too large. */
static int
take_digits(Span *text, uint64_t max, int64_t *number)
{
    uint64_t value;
    size_t size = read_digits(*text, max, &value);
    if (size == 0)
        return 0;
    *number = (int64_t)value;
    text->bytes += size;
    text->size -= size;
    return 1;
}

/* Cut digits behind their size off a binary header. */
static int
take_sized(Span *header, uint64_t max, int64_t *number)
{
    if (header->size < 4)
        return 0;
    size_t size = load_u32(header->bytes);
    if (size > header->size - 4)
        return 0;
    Span digits = {header->bytes + 4, size};
    if (!take_digits(&digits, max, number) || digits.size != 0)
        return 0;
    header->bytes += 4 + size;
    header->size -= 4 + size;
    return 1;
}

static int
take_number(Span *header, uint8_t slot, Numbers *numbers)
{
    switch (slot) {
    case 'o': /* binary: four bytes */
        if (header->size < 4)
            return 0;
        numbers->opaque = (int32_t)load_u32(header->bytes);
        break;
    case 's': /* binary: the size of all fields, which are the rest */
        if (header->size < 4 || load_u32(header->bytes) != header->size - 4)
            return 0;
        break;
    case 'q': return take_sized(header, NUMBER_MAX, &numbers->queue_id);
    case 'f': return take_sized(header, OFFSET_MAX, &numbers->queue_offset);
    case 'c': return take_sized(header, OFFSET_MAX, &numbers->commit_offset);
    case 'O': return take_digits(header, NUMBER_MAX, &numbers->opaque);
    case 'Q': return take_digits(header, NUMBER_MAX, &numbers->queue_id);
    case 'F': return take_digits(header, OFFSET_MAX, &numbers->queue_offset);
    case 'C': return take_digits(header, OFFSET_MAX, &numbers->commit_offset);
    default: return 0;
    }
    header->bytes += 4;
    header->size -= 4;
    return 1;
}

static int
take_piece(Span *header, Span piece)
{
    if (piece.size > header->size || memcmp(header->bytes, piece.bytes, piece.size) != 0)
        return 0;
    header->bytes += piece.size;
    header->size -= piece.size;
    return 1;
}

/* The numbers of the frame at the beginning of `data`, and its size; 0: it is not complete, or not
   of the template. A pull has no body. */
static size_t
read_numbers(const Template *template, Span data, size_t frame_size_max, Numbers *numbers)
{
    if (data.size < FRAME_START_SIZE)
        return 0;
    size_t length = load_u32(data.bytes), mark = load_u32(data.bytes + 4);
    size_t header_size = mark & 0xFFFFFF;
    if (mark >> 24 != (size_t)template->serialize_type || length != header_size + 4 ||
        length > frame_size_max || length > data.size - 4)
        return 0;
    Span header = {data.bytes + FRAME_START_SIZE, header_size};
    for (size_t slot = 0; slot < template->slots.size; slot++)
        if (!take_piece(&header, template->pieces[slot]) ||
            !take_number(&header, template->slots.bytes[slot], numbers))
            return 0;
    if (!take_piece(&header, template->pieces[template->slots.size]) || header.size != 0)
        return 0;
    return 4 + length;
}

/* ---- a command for Python -------------------------------------------------------------- */

static PyObject *
call_and_release(PyObject *class, PyObject **parts, size_t count)
{
    PyObject *made = NULL;
    int complete = 1;
    for (size_t part = 0; part < count; part++)
        complete &= parts[part] != NULL;
    if (complete)
        made = PyObject_Vectorcall(class, parts, count, NULL);
    for (size_t part = 0; part < count; part++)
        Py_XDECREF(parts[part]);
    return made;
}

/* Append a command to the list; -1 with an exception set. */
static int
append_command(const Pulls *pulls, const Numbers *numbers)
{
    const Template *template = &pulls->template;
    PyObject *values[4] = {
        Py_NewRef(template->series),
        PyLong_FromLongLong(numbers->queue_id),
        PyLong_FromLongLong(numbers->queue_offset),
        PyLong_FromLongLong(numbers->commit_offset),
    };
    /* The class is called first: nothing is called while an exception is set. */
    PyObject *fields = call_and_release(pulls->fields_class, values, 4);
    if (fields == NULL)
        return -1;
    PyObject *parts[9] = {
        PyLong_FromLongLong(template->code),
        fields,
        PyBytes_FromStringAndSize(NULL, 0),
        Py_NewRef(Py_None), /* remark */
        PyLong_FromLongLong(numbers->opaque),
        PyLong_FromLongLong(template->flag),
        PyLong_FromLongLong(template->language),
        PyLong_FromLongLong(template->version),
        PyLong_FromLongLong(template->serialize_type),
    };
    PyObject *command = call_and_release(pulls->command_class, parts, 9);
    int failed = command == NULL || PyList_Append(pulls->commands, command) < 0;
    Py_XDECREF(command);
    return failed ? -1 : 0;
}

/* ---- holding --------------------------------------------------------------------------- */

/* Whether a queue of the store ends at this offset, which is not its first. */
static Outcome
ends_at(const Pulls *pulls, PyObject *key, int64_t queue_offset)
{
    Queue *queue;
    Outcome found = find_state(pulls->state, pulls->holding.queues, key, &queue);
    if (found != USUAL)
        return found;
    int64_t end = queue->max_offset;
    Py_DECREF(queue);
    return end > 0 && end == queue_offset ? USUAL : NOT_FOR_ME;
}

/* Whether the offset may be committed: it does not go back, and is not past the end. */
static Outcome
may_commit(const Holding *holding, PyObject *queue_id, const Numbers *numbers)
{
    int64_t before;
    if (holding->commit_offsets == Py_None)
        return USUAL;
    PyObject *committed = PyDict_GetItemWithError(holding->commit_offsets, queue_id);
    if (committed == NULL && PyErr_Occurred())
        return FAILED;
    int goes_back =
        committed != NULL && !number_of(committed, INT64_MIN, numbers->commit_offset, &before);
    return goes_back || numbers->commit_offset > numbers->queue_offset ? NOT_FOR_ME : USUAL;
}

/* The queue's dict of held pulls, with room for one more, and the queue. The caller releases
   both. */
static Outcome
find_place(const Pulls *pulls, PyObject *key, PyObject **queue, PyObject **others)
{
    const State *state = pulls->state;
    *queue = PyDict_GetItemWithError(pulls->holding.held_queues, key);
    if (*queue == NULL)
        return PyErr_Occurred() ? FAILED : NOT_FOR_ME;
    Py_INCREF(*queue);
    PyObject *of_channels = PyObject_GetAttr(*queue, state->of_channels);
    Py_XDECREF(of_channels);
    if (of_channels != Py_None)
        return of_channels == NULL ? FAILED : NOT_FOR_ME;
    Outcome found = only_others(state, *queue, others);
    if (found != USUAL)
        return found;
    return PyDict_GET_SIZE(*others) < pulls->holding.queue_pulls_max ? USUAL : NOT_FOR_ME;
}

static PyObject *
new_held(const Pulls *pulls, const Numbers *numbers, PyObject *queue_id, PyObject *queue)
{
    const Holding *holding = &pulls->holding;
    PyObject *pull[7] = {
        Py_NewRef(holding->channel),
        PyLong_FromLongLong(numbers->opaque),
        PyLong_FromLongLong(pulls->template.serialize_type),
        Py_NewRef(holding->terms),
        Py_NewRef(queue_id),
        PyLong_FromLongLong(numbers->queue_offset),
        Py_NewRef(Py_None), /* selector */
    };
    PyObject *held[3] = {
        call_and_release(pulls->pull_class, pull, 7),
        Py_NewRef(holding->deadline),
        Py_NewRef(queue),
    };
    return call_and_release(pulls->held_class, held, 3);
}

/* Hold a pull, and record its offsets; -1: an exception is set, and it is not held. */
static int
hold(const Pulls *pulls, const Numbers *numbers, PyObject *queue_id, PyObject *queue,
     PyObject *others)
{
    const Holding *holding = &pulls->holding;
    PyObject *offset = PyLong_FromLongLong(numbers->queue_offset);
    PyObject *committed = PyLong_FromLongLong(numbers->commit_offset);
    PyObject *held = new_held(pulls, numbers, queue_id, queue);
    int failed = offset == NULL || committed == NULL || held == NULL ||
                 PyDict_SetItem(holding->pull_offsets, queue_id, offset) < 0 ||
                 (holding->commit_offsets != Py_None &&
                  PyDict_SetItem(holding->commit_offsets, queue_id, committed) < 0) ||
                 PyList_Append(pulls->held, held) < 0;
    if (!failed && PyDict_SetItem(others, held, Py_None) < 0) {
        PyObject *raised = take_raised();
        Py_ssize_t count = PyList_GET_SIZE(pulls->held);
        if (PyList_SetSlice(pulls->held, count - 1, count, NULL) < 0)
            PyErr_WriteUnraisable(pulls->held);
        raise_again(raised);
        failed = 1;
    }
    Py_XDECREF(offset);
    Py_XDECREF(committed);
    Py_XDECREF(held);
    return failed ? -1 : 0;
}

static Outcome
try_to_hold(const Pulls *pulls, const Numbers *numbers)
{
    const Holding *holding = &pulls->holding;
    if (numbers->queue_id >= holding->queue_count ||
        PyList_GET_SIZE(pulls->held) >= holding->count_max)
        return NOT_FOR_ME;
    PyObject *queue = NULL, *others = NULL, *key = NULL;
    PyObject *queue_id = PyLong_FromLongLong(numbers->queue_id);
    Outcome found = FAILED;
    if (queue_id != NULL)
        key = PyTuple_Pack(2, holding->topic, queue_id);
    if (key != NULL)
        found = ends_at(pulls, key, numbers->queue_offset);
    if (found == USUAL)
        found = may_commit(holding, queue_id, numbers);
    if (found == USUAL)
        found = find_place(pulls, key, &queue, &others);
    if (found == USUAL && hold(pulls, numbers, queue_id, queue, others) < 0)
        found = FAILED;
    Py_XDECREF(queue);
    Py_XDECREF(others);
    Py_XDECREF(key);
    Py_XDECREF(queue_id);
    return found;
}

/* ---- the function ---------------------------------------------------------------------- */

/* Take the pulls at the beginning of `data`. Returns the bytes of their frames, or -1 with an
   exception set. */
static Py_ssize_t
take_all(Pulls *pulls, Span data, size_t frame_size_max)
{
    const uint8_t *start = data.bytes;
    Numbers numbers = {0, 0, 0, 0};
    size_t size;
    while ((size = read_numbers(&pulls->template, data, frame_size_max, &numbers)) != 0) {
        Outcome held = pulls->may_hold ? try_to_hold(pulls, &numbers) : NOT_FOR_ME;
        if (held == FAILED)
            return -1;
        if (held == NOT_FOR_ME) {
            pulls->may_hold = 0; /* pulls are served in their order */
            if (append_command(pulls, &numbers) < 0)
                return -1;
        }
        data.bytes += size;
        data.size -= size;
    }
    return data.bytes - start;
}

static int
read_template(PyObject *tuple, Template *template)
{
    if (!PyTuple_Check(tuple) || PyTuple_GET_SIZE(tuple) != 4 ||
        !PyTuple_CheckExact(PyTuple_GET_ITEM(tuple, 0)) ||
        !PyTuple_CheckExact(PyTuple_GET_ITEM(tuple, 2)) ||
        PyTuple_GET_SIZE(PyTuple_GET_ITEM(tuple, 2)) != 5) {
        PyErr_SetString(PyExc_TypeError, "a template has four parts");
        return -1;
    }
    PyObject *pieces = PyTuple_GET_ITEM(tuple, 0), *command = PyTuple_GET_ITEM(tuple, 2);
    template->series = PyTuple_GET_ITEM(tuple, 3);
    if (bytes_argument(PyTuple_GET_ITEM(tuple, 1), &template->slots) < 0)
        return -1;
    int64_t *numbers[5] = {&template->code, &template->flag, &template->language,
                           &template->version, &template->serialize_type};
    int right = PyTuple_GET_SIZE(pieces) <= PIECES_MAX &&
                (size_t)PyTuple_GET_SIZE(pieces) == template->slots.size + 1;
    for (Py_ssize_t at = 0; at < 5; at++)
        right &= number_of(PyTuple_GET_ITEM(command, at), INT32_MIN, INT32_MAX, numbers[at]);
    if (!right) {
        PyErr_SetString(PyExc_ValueError, "the parts of a template do not fit");
        return -1;
    }
    for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(pieces); at++)
        if (bytes_argument(PyTuple_GET_ITEM(pieces, at), &template->pieces[at]) < 0)
            return -1;
    return 0;
}

static int
read_holding(PyObject *tuple, Holding *holding)
{
    if (!PyTuple_Check(tuple) || PyTuple_GET_SIZE(tuple) != 11) {
        PyErr_SetString(PyExc_TypeError, "holding needs eleven parts");
        return -1;
    }
    PyObject **objects[8] = {&holding->queues, &holding->held_queues, &holding->channel,
                             &holding->terms, &holding->topic, &holding->deadline,
                             &holding->pull_offsets, &holding->commit_offsets};
    for (Py_ssize_t at = 0; at < 8; at++)
        *objects[at] = PyTuple_GET_ITEM(tuple, at);
    if (!PyDict_Check(holding->queues) || !PyDict_Check(holding->held_queues) ||
        !PyDict_Check(holding->pull_offsets) ||
        (holding->commit_offsets != Py_None && !PyDict_Check(holding->commit_offsets))) {
        PyErr_SetString(PyExc_TypeError, "holding has parts of other types");
        return -1;
    }
    if (!number_of(PyTuple_GET_ITEM(tuple, 8), 0, INT32_MAX, &holding->queue_count) ||
        !number_of(PyTuple_GET_ITEM(tuple, 9), 0, INT32_MAX, &holding->queue_pulls_max) ||
        !number_of(PyTuple_GET_ITEM(tuple, 10), INT64_MIN, INT64_MAX, &holding->count_max)) {
        PyErr_SetString(PyExc_ValueError, "a limit of holding is out of range");
        return -1;
    }
    return 0;
}

static int
read_classes(PyObject *tuple, Pulls *pulls)
{
    if (!PyTuple_CheckExact(tuple) || PyTuple_GET_SIZE(tuple) != 4) {
        PyErr_SetString(PyExc_TypeError, "pulls are made of four classes");
        return -1;
    }
    pulls->command_class = PyTuple_GET_ITEM(tuple, 0);
    pulls->fields_class = PyTuple_GET_ITEM(tuple, 1);
    pulls->pull_class = PyTuple_GET_ITEM(tuple, 2);
    pulls->held_class = PyTuple_GET_ITEM(tuple, 3);
    return 0;
}

/* take_pulls(classes, template, holding, data, position, frame_size_max, commands, held)
   -> position after the pulls */
PyObject *
take_pulls(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    Pulls pulls = {.state = state_of(module)};
    Span data;
    int64_t position, frame_size_max;
    if (argument_count("take_pulls", count, 8) < 0 || read_classes(arguments[0], &pulls) < 0 ||
        read_template(arguments[1], &pulls.template) < 0 ||
        bytes_argument(arguments[3], &data) < 0)
        return NULL;
    pulls.may_hold = arguments[2] != Py_None;
    if (pulls.may_hold && read_holding(arguments[2], &pulls.holding) < 0)
        return NULL;
    pulls.commands = arguments[6];
    pulls.held = arguments[7];
    if (!PyList_CheckExact(pulls.commands) || !PyList_CheckExact(pulls.held)) {
        PyErr_SetString(PyExc_TypeError, "take_pulls() appends to two lists");
        return NULL;
    }
    if (!number_of(arguments[4], 0, (int64_t)data.size, &position) ||
        !number_of(arguments[5], 0, INT32_MAX, &frame_size_max)) {
        PyErr_SetString(PyExc_ValueError, "a position or size is out of range");
        return NULL;
    }
    data.bytes += position;
    data.size -= (size_t)position;
    Py_ssize_t size = take_all(&pulls, data, (size_t)frame_size_max);
    return size < 0 ? NULL : PyLong_FromLongLong(position + size);
}
