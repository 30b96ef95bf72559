/* The state of a consume queue that C and Python share: what records repeat, the units in memory,
   and the offsets. C owns it; Python reads and sets it by attributes, and has the rules.

   Pure Python: `PureQueueState` of native/queue_state.py, which describes the attributes. */
#include "native.h"

#include <structmember.h>

/* ---- units ----------------------------------------------------------------------------- */

/* Whether the tail is what it should be: Python may set it. -1 with TypeError set. */
static int
check_tail(const Queue *queue)
{
    if (queue->tail != NULL && PyByteArray_CheckExact(queue->tail))
        return 0;
    PyErr_SetString(PyExc_TypeError, "the tail of a queue is a bytearray");
    return -1;
}

/* Make room for units at the end of the tail, and count them. Returns the place, which is to be
   filled at once; NULL: an exception is set and nothing has changed. */
uint8_t *
grow_tail(Queue *queue, Py_ssize_t size, int64_t count)
{
    if (check_tail(queue) < 0)
        return NULL;
    if (queue->next_offset < 0 || queue->next_offset > INT64_MAX - count) {
        PyErr_SetString(PyExc_ValueError, "a queue's offset is out of range");
        return NULL;
    }
    Py_ssize_t end = PyByteArray_GET_SIZE(queue->tail);
    if (size > PY_SSIZE_T_MAX - end || PyByteArray_Resize(queue->tail, end + size) < 0)
        return PyErr_Occurred() ? NULL : (uint8_t *)PyErr_NoMemory();
    queue->next_offset += count;
    return (uint8_t *)PyByteArray_AS_STRING(queue->tail) + end;
}

/* Remove the unit that was appended last; -1 with an exception set. */
int
remove_unit(Queue *queue)
{
    if (check_tail(queue) < 0 ||
        PyByteArray_Resize(queue->tail, PyByteArray_GET_SIZE(queue->tail) - UNIT_SIZE) < 0)
        return -1;
    queue->next_offset--;
    return 0;
}

/* Export the units; -1 with an exception set. They stay where they are until the release. */
int
export_units(const Queue *queue, Py_buffer *units)
{
    return check_tail(queue) < 0 ? -1 : PyObject_GetBuffer(queue->tail, units, PyBUF_SIMPLE);
}

/* append_units(units, count) -> whether these are the first since the last commit */
static PyObject *
append_method(PyObject *self, PyObject *const *arguments, Py_ssize_t given)
{
    Queue *queue = (Queue *)self;
    Span units;
    int64_t count;
    if (argument_count("append_units", given, 2) < 0 || bytes_argument(arguments[0], &units) < 0)
        return NULL;
    if (!number_of(arguments[1], 0, INT32_MAX, &count)) {
        PyErr_SetString(PyExc_ValueError, "a number of units is out of range");
        return NULL;
    }
    int is_first = queue->next_offset == queue->committed_offset;
    uint8_t *at = grow_tail(queue, (Py_ssize_t)units.size, count);
    if (at == NULL)
        return NULL;
    store_bytes(at, units.bytes, units.size);
    return PyBool_FromLong(is_first);
}

/* ---- the type -------------------------------------------------------------------------- */

static PyObject *
new_queue(PyTypeObject *type, PyObject *Py_UNUSED(arguments), PyObject *Py_UNUSED(named))
{
    Queue *queue = (Queue *)type->tp_alloc(type, 0);
    if (queue == NULL)
        return NULL;
    queue->tail = PyByteArray_FromStringAndSize(NULL, 0);
    if (queue->tail == NULL)
        Py_CLEAR(queue);
    return (PyObject *)queue;
}

/* QueueState(topic_field, topic_hash, magic, unit_size) */
static int
init_queue(PyObject *self, PyObject *arguments, PyObject *named)
{
    Queue *queue = (Queue *)self;
    PyObject *topic_field, *topic_hash, *magic;
    if (named != NULL || queue->topic_field != NULL) {
        PyErr_SetString(PyExc_TypeError, "a queue is set up once, by four positions");
        return -1;
    }
    if (!PyArg_ParseTuple(arguments, "O!OOi", &PyBytes_Type, &topic_field, &topic_hash, &magic,
                          &queue->unit_size))
        return -1;
    queue->topic_field = Py_NewRef(topic_field);
    queue->topic_hash = Py_NewRef(topic_hash);
    queue->magic = Py_NewRef(magic);
    return 0;
}

static void
free_queue(PyObject *self)
{
    Queue *queue = (Queue *)self;
    PyTypeObject *type = Py_TYPE(self);
    Py_CLEAR(queue->topic_field);
    Py_CLEAR(queue->topic_hash);
    Py_CLEAR(queue->magic);
    Py_CLEAR(queue->tail);
    type->tp_free(self);
    Py_DECREF(type);
}

#define MEMBER(name, kind, flags) {#name, kind, offsetof(Queue, name), flags, NULL}

static PyMemberDef members[] = {
    MEMBER(topic_field, T_OBJECT_EX, READONLY),
    MEMBER(topic_hash, T_OBJECT_EX, READONLY),
    MEMBER(magic, T_OBJECT_EX, READONLY),
    MEMBER(unit_size, T_INT, READONLY),
    MEMBER(tail, T_OBJECT_EX, 0),
    MEMBER(min_offset, T_LONGLONG, 0),
    MEMBER(tail_offset, T_LONGLONG, 0),
    MEMBER(max_offset, T_LONGLONG, 0),
    MEMBER(committed_offset, T_LONGLONG, 0),
    MEMBER(next_offset, T_LONGLONG, 0),
    MEMBER(cold_end, T_LONGLONG, 0),
    {NULL, 0, 0, 0, NULL},
};

static PyMethodDef methods[] = {
    {"append_units", (PyCFunction)(void (*)(void))append_method, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, (void *)new_queue},
    {Py_tp_init, (void *)init_queue},
    {Py_tp_dealloc, (void *)free_queue},
    {Py_tp_members, members},
    {Py_tp_methods, methods},
    {0, NULL},
};

/* Without GC: what it refers to refers to nothing. Its subclasses in Python have it. */
static PyType_Spec spec = {
    .name = "trocket.native._native.QueueState",
    .basicsize = sizeof(Queue),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .slots = slots,
};

/* Add the type to the module and its state; -1 with an exception set. */
int
add_queue_type(PyObject *module, State *state)
{
    state->queue_type = PyType_FromModuleAndSpec(module, &spec, NULL);
    return state->queue_type == NULL
               ? -1
               : PyModule_AddObjectRef(module, "QueueState", state->queue_type);
}

/* The queue of a key, a strong reference. Not for me: it does not exist, or has other units. */
Outcome
find_state(const State *state, PyObject *queues, PyObject *key, Queue **queue)
{
    PyObject *found = PyDict_GetItemWithError(queues, key);
    if (found == NULL)
        return PyErr_Occurred() ? FAILED : NOT_FOR_ME;
    if (!PyObject_TypeCheck(found, (PyTypeObject *)state->queue_type)) {
        PyErr_SetString(PyExc_TypeError, "a queue is a QueueState");
        return FAILED;
    }
    if (((Queue *)found)->unit_size != UNIT_SIZE)
        return NOT_FOR_ME;
    *queue = (Queue *)Py_NewRef(found);
    return USUAL;
}
