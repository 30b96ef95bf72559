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
    FUNCTION(is_plain_batch),
    FUNCTION(pack_batch),
    FUNCTION(pack_sends),
    FUNCTION(pack_deliveries),
    FUNCTION(fill_answer),
    FUNCTION(batch_ids),
    FUNCTION(decode_records),
    FUNCTION(send_frame),
    FUNCTION(grpc_send),
    FUNCTION(grpc_sent),
    FUNCTION(grpc_message),
    FUNCTION(grpc_ack),
    FUNCTION(grpc_acked),
    FUNCTION(join_records),
    FUNCTION(take_pulls),
    FUNCTION(take_transactions),
    FUNCTION(pack_put),
    FUNCTION(wake_pulls),
    {NULL, NULL, 0, NULL},
};

#define ADD_LIMIT(name) || PyModule_AddIntConstant(module, #name, (long)name) < 0
#define TEXT_OF(name) #name,

/* What Python has as well, for the tests to compare: `limits.h`, and the names of attributes. */
static int
add_names(PyObject *module)
{
    static const char *const names[] = {ATTRIBUTES(TEXT_OF)};
    if (0 LIMITS(ADD_LIMIT))
        return -1;
    PyObject *tuple = PyTuple_New(sizeof names / sizeof names[0]);
    for (size_t at = 0; tuple != NULL && at < sizeof names / sizeof names[0]; at++) {
        PyObject *name = PyUnicode_FromString(names[at]);
        if (name == NULL)
            Py_CLEAR(tuple);
        else
            PyTuple_SET_ITEM(tuple, (Py_ssize_t)at, name);
    }
    int failed = tuple == NULL || PyModule_AddObjectRef(module, "attributes", tuple) < 0;
    Py_XDECREF(tuple);
    return failed ? -1 : 0;
}

#define INTERN_NAME(name)                                                                          \
    if ((state->name = PyUnicode_InternFromString(#name)) == NULL)                            \
        return -1;

static int
execute(PyObject *module)
{
    State *state = state_of(module);
    make_crc_table(state);
    state->schedule_topic = PyUnicode_InternFromString("SCHEDULE_TOPIC_XXXX");
    if (state->schedule_topic == NULL)
        return -1;
    ATTRIBUTES(INTERN_NAME)
    if (add_names(module) < 0 || add_queue_type(module, state) < 0)
        return -1;
    return PyModule_AddIntConstant(module, "sources_crc", (long)TROCKET_SOURCES_CRC);
}

#define VISIT_NAME(name) Py_VISIT(state->name);
#define CLEAR_NAME(name) Py_CLEAR(state->name);

static int
traverse(PyObject *module, visitproc visit, void *arg)
{
    State *state = state_of(module);
    if (state == NULL)
        return 0;
    Py_VISIT(state->queue_type);
    Py_VISIT(state->schedule_topic);
    ATTRIBUTES(VISIT_NAME)
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
    Py_CLEAR(state->queue_type);
    Py_CLEAR(state->schedule_topic);
    ATTRIBUTES(CLEAR_NAME)
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
