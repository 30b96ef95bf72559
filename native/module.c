/* The module: its functions, its state, and what the other files share. */
#include "native.h"

#ifndef TROCKET_SOURCES_CRC
#error "setup.py defines TROCKET_SOURCES_CRC: the checksum of these sources"
#endif

int
argument_count(const char *function, Py_ssize_t given, Py_ssize_t wanted)
{
    if (given == wanted)
        return 0;
    PyErr_Format(PyExc_TypeError, "%s() takes %zd arguments, not %zd", function, wanted, given);
    return -1;
}

int
bytes_argument(PyObject *argument, Span *span)
{
    if (!PyBytes_Check(argument)) {
        PyErr_Format(PyExc_TypeError, "bytes expected, not %.100s", Py_TYPE(argument)->tp_name);
        return -1;
    }
    *span = span_of(argument);
    return 0;
}

int
number_of(PyObject *argument, int64_t low, int64_t high, int64_t *number)
{
    if (!PyLong_Check(argument))
        return 0;
    int overflow;
    *number = PyLong_AsLongLongAndOverflow(argument, &overflow);
    return !overflow && *number >= low && *number <= high;
}

Outcome
number_attribute(PyObject *object, PyObject *name, int64_t low, int64_t high, int64_t *number)
{
    PyObject *value = PyObject_GetAttr(object, name);
    if (value == NULL)
        return FAILED;
    int is_number = number_of(value, low, high, number);
    Py_DECREF(value);
    return is_number ? USUAL : NOT_FOR_ME;
}

#if PY_VERSION_HEX >= 0x030C0000

PyObject *
take_raised(void)
{
    return PyErr_GetRaisedException();
}

void
raise_again(PyObject *raised)
{
    PyErr_SetRaisedException(raised);
}

#else

PyObject *
take_raised(void)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    if (type != NULL)
        PyErr_NormalizeException(&type, &value, &traceback);
    if (traceback != NULL)
        PyException_SetTraceback(value, traceback);
    Py_XDECREF(type);
    Py_XDECREF(traceback);
    return value;
}

void
raise_again(PyObject *raised)
{
    if (raised != NULL)
        PyErr_Restore(Py_NewRef(Py_TYPE(raised)), raised, PyException_GetTraceback(raised));
}

#endif

int
buffer_reserve(Buffer *buffer, size_t more)
{
    if (more <= buffer->capacity - buffer->size)
        return 0;
    size_t most = (size_t)PY_SSIZE_T_MAX / 2;
    if (more > most || buffer->size > most - more) {
        PyErr_NoMemory();
        return -1;
    }
    size_t capacity = 2 * (buffer->size + more);
    uint8_t *bytes = PyMem_Realloc(buffer->bytes, capacity);
    if (bytes == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    buffer->bytes = bytes;
    buffer->capacity = capacity;
    return 0;
}

void
buffer_free(Buffer *buffer)
{
    PyMem_Free(buffer->bytes);
    *buffer = (Buffer){NULL, 0, 0};
}

#define FUNCTION(name) {#name, (PyCFunction)(void (*)(void))name, METH_FASTCALL, NULL}

static PyMethodDef functions[] = {
    FUNCTION(decode_frames),
    FUNCTION(find_property),
    FUNCTION(index_entries),
    FUNCTION(index_put),
    FUNCTION(pack_batch),
    FUNCTION(pack_sends),
    FUNCTION(pack_deliveries),
    FUNCTION(fill_answer),
    FUNCTION(batch_ids),
    FUNCTION(decode_records),
    FUNCTION(send_frame),
    FUNCTION(join_records),
    FUNCTION(take_pulls),
    FUNCTION(wake_pulls),
    {NULL, NULL, 0, NULL},
};

static int
execute(PyObject *module)
{
    State *state = state_of(module);
    make_crc_table(state);
    state->one = PyLong_FromLong(1);
    if (state->one == NULL)
        return -1;
    struct {
        PyObject **name;
        const char *text;
    } names[] = {
        {&state->magic, "magic"},
        {&state->topic_field, "topic_field"},
        {&state->topic_hash, "topic_hash"},
        {&state->tail, "tail"},
        {&state->next_offset, "next_offset"},
        {&state->committed_offset, "committed_offset"},
        {&state->write_queue_nums, "write_queue_nums"},
        {&state->schedule_topic, "SCHEDULE_TOPIC_XXXX"},
        {&state->topic, "topic"},
        {&state->group, "group"},
        {&state->pull, "pull"},
        {&state->selector, "selector"},
        {&state->channel, "channel"},
        {&state->closed, "closed"},
        {&state->terms, "terms"},
        {&state->opaque, "opaque"},
        {&state->serialize_type, "serialize_type"},
        {&state->queue_offset, "queue_offset"},
        {&state->count_max, "count_max"},
        {&state->size_max, "size_max"},
        {&state->topic_sys_flag, "topic_sys_flag"},
        {&state->offset_key, "offset_key"},
        {&state->group_sys_flag, "group_sys_flag"},
        {&state->min_offset, "min_offset"},
        {&state->max_offset, "max_offset"},
        {&state->tail_offset, "tail_offset"},
        {&state->cold_end, "cold_end"},
        {&state->is_batch, "is_batch"},
        {&state->queue, "queue"},
        {&state->others, "others"},
        {&state->tagged, "tagged"},
        {&state->of_channels, "of_channels"},
    };
    for (size_t at = 0; at < sizeof names / sizeof names[0]; at++) {
        *names[at].name = PyUnicode_InternFromString(names[at].text);
        if (*names[at].name == NULL)
            return -1;
    }
    return PyModule_AddIntConstant(module, "sources_crc", (long)TROCKET_SOURCES_CRC);
}

static int
traverse(PyObject *module, visitproc visit, void *arg)
{
    State *state = state_of(module);
    if (state == NULL)
        return 0;
    Py_VISIT(state->one);
    Py_VISIT(state->magic);
    Py_VISIT(state->topic_field);
    Py_VISIT(state->topic_hash);
    Py_VISIT(state->tail);
    Py_VISIT(state->next_offset);
    Py_VISIT(state->committed_offset);
    Py_VISIT(state->write_queue_nums);
    Py_VISIT(state->schedule_topic);
    Py_VISIT(state->topic);
    Py_VISIT(state->group);
    Py_VISIT(state->pull);
    Py_VISIT(state->selector);
    Py_VISIT(state->channel);
    Py_VISIT(state->closed);
    Py_VISIT(state->terms);
    Py_VISIT(state->opaque);
    Py_VISIT(state->serialize_type);
    Py_VISIT(state->queue_offset);
    Py_VISIT(state->count_max);
    Py_VISIT(state->size_max);
    Py_VISIT(state->topic_sys_flag);
    Py_VISIT(state->offset_key);
    Py_VISIT(state->group_sys_flag);
    Py_VISIT(state->min_offset);
    Py_VISIT(state->max_offset);
    Py_VISIT(state->tail_offset);
    Py_VISIT(state->cold_end);
    Py_VISIT(state->is_batch);
    Py_VISIT(state->queue);
    Py_VISIT(state->others);
    Py_VISIT(state->tagged);
    Py_VISIT(state->of_channels);
    for (int slot = 0; slot < NAMES_COUNT; slot++) {
        Py_VISIT(state->names[slot].name);
        Py_VISIT(state->names[slot].value);
    }
    return 0;
}

static int
clear(PyObject *module)
{
    State *state = state_of(module);
    if (state == NULL)
        return 0;
    Py_CLEAR(state->one);
    Py_CLEAR(state->magic);
    Py_CLEAR(state->topic_field);
    Py_CLEAR(state->topic_hash);
    Py_CLEAR(state->tail);
    Py_CLEAR(state->next_offset);
    Py_CLEAR(state->committed_offset);
    Py_CLEAR(state->write_queue_nums);
    Py_CLEAR(state->schedule_topic);
    Py_CLEAR(state->topic);
    Py_CLEAR(state->group);
    Py_CLEAR(state->pull);
    Py_CLEAR(state->selector);
    Py_CLEAR(state->channel);
    Py_CLEAR(state->closed);
    Py_CLEAR(state->terms);
    Py_CLEAR(state->opaque);
    Py_CLEAR(state->serialize_type);
    Py_CLEAR(state->queue_offset);
    Py_CLEAR(state->count_max);
    Py_CLEAR(state->size_max);
    Py_CLEAR(state->topic_sys_flag);
    Py_CLEAR(state->offset_key);
    Py_CLEAR(state->group_sys_flag);
    Py_CLEAR(state->min_offset);
    Py_CLEAR(state->max_offset);
    Py_CLEAR(state->tail_offset);
    Py_CLEAR(state->cold_end);
    Py_CLEAR(state->is_batch);
    Py_CLEAR(state->queue);
    Py_CLEAR(state->others);
    Py_CLEAR(state->tagged);
    Py_CLEAR(state->of_channels);
    for (int slot = 0; slot < NAMES_COUNT; slot++) {
        Py_CLEAR(state->names[slot].name);
        Py_CLEAR(state->names[slot].value);
    }
    return 0;
}

static void
free_state(void *module)
{
    clear((PyObject *)module);
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)execute},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "trocket.native._native",
    .m_doc = "The C extension of trocket; trocket/native/extension.py describes it.",
    .m_size = sizeof(State),
    .m_methods = functions,
    .m_slots = slots,
    .m_traverse = traverse,
    .m_clear = clear,
    .m_free = free_state,
};

PyMODINIT_FUNC PyInit__native(void);

PyMODINIT_FUNC
PyInit__native(void)
{
    return PyModuleDef_Init(&definition);
}
