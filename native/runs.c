/* Runs: messages that are added to a burst one after the other, all or none of them.

   Three steps: give each message its queue and its place in the log; append the units; write the
   records and the index entries. A failure undoes the second. sends.c and deliveries.c make runs.

   Pure Python: `MessageAppender.put_message`. */
#include "native.h"

/* ---- step 1: the queue and the place --------------------------------------------------- */

/* The next message of the run, empty; it is counted by `place_put`. NULL with MemoryError set. */
Put *
next_put(Run *run)
{
    if (run->count == run->capacity) {
        Py_ssize_t capacity = run->capacity ? 4 * run->capacity : 64;
        Put *puts = PyMem_Realloc(run->puts, (size_t)capacity * sizeof *puts);
        if (puts == NULL) {
            PyErr_NoMemory();
            return NULL;
        }
        run->puts = puts;
        run->capacity = capacity;
    }
    return memset(&run->puts[run->count], 0, sizeof *run->puts);
}

/* Look up a queue, and copy what a record needs of it. It is not for me if it does not exist, or is
   not plain. */
Outcome
find_queue(const Run *run, PyObject *topic, uint32_t queue_id, Put *put)
{
    const State *state = run->state;
    PyObject *number = PyLong_FromUnsignedLong(queue_id);
    if (number == NULL)
        return FAILED;
    PyObject *key = PyTuple_Pack(2, topic, number);
    Py_DECREF(number);
    if (key == NULL)
        return FAILED;
    PyObject *queue = PyDict_GetItemWithError(run->queues, key);
    Py_XINCREF(queue);
    Py_DECREF(key);
    if (queue == NULL)
        return PyErr_Occurred() ? FAILED : NOT_FOR_ME;
    put->queue = queue; /* released with the run */
    int64_t magic, topic_hash;
    Outcome found = number_attribute(queue, state->magic, INT32_MIN, INT32_MAX, &magic);
    if (found == USUAL)
        found = number_attribute(queue, state->topic_hash, 0, UINT32_MAX, &topic_hash);
    if (found != USUAL)
        return found;
    put->topic_hash = (uint32_t)topic_hash;
    put->topic_field = PyObject_GetAttr(queue, state->topic_field);
    if (put->topic_field == NULL)
        return FAILED;
    if ((uint32_t)magic != MAGIC_V1 || !PyBytes_CheckExact(put->topic_field))
        return NOT_FOR_ME;
    put->record.topic_field = span_of(put->topic_field);
    put->record.queue_id = queue_id;
    return USUAL;
}

/* Give a complete message its place in the log, and count it, if there is room. */
Outcome
place_put(Run *run, Put *put)
{
    Record *record = &put->record;
    size_t properties_size =
        record->properties.size + separator_size(record) + record->added.size;
    size_t size = record_size(record);
    int64_t room = run->file_end - run->physical_offset - 8; /* for a blank after it */
    if (properties_size > PROPERTIES_SIZE_MAX || size > INT32_MAX || (int64_t)size > room)
        return NOT_FOR_ME;
    record->physical_offset = (uint64_t)run->physical_offset;
    record->store_ms = (uint64_t)run->store_ms;
    run->physical_offset += (int64_t)size;
    run->records_size += size;
    run->count++;
    return USUAL;
}

void
release_put(Put *put)
{
    Py_CLEAR(put->queue);
    Py_CLEAR(put->topic_field);
    Py_CLEAR(put->next_offset);
    PyMem_Free(put->changed);
    put->changed = NULL;
}

void
release_run(Run *run)
{
    for (Py_ssize_t at = 0; at < run->count; at++)
        release_put(&run->puts[at]);
    PyMem_Free(run->puts);
    run->puts = NULL;
    run->count = run->capacity = 0;
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

/* Append a unit to the queue of a message; -1: an exception is set and nothing has changed. */
static int
append_unit(Run *run, Put *put, PyObject *touched)
{
    const State *state = run->state;
    int64_t next, committed;
    Outcome found = number_attribute(put->queue, state->next_offset, 0, INT64_MAX - 1, &next);
    if (found == USUAL)
        found = number_attribute(put->queue, state->committed_offset, 0, INT64_MAX, &committed);
    if (found != USUAL) {
        if (found == NOT_FOR_ME)
            PyErr_SetString(PyExc_ValueError, "a queue's offset is out of range");
        return -1;
    }
    PyObject *before = PyLong_FromLongLong(next), *after = PyLong_FromLongLong(next + 1);
    PyObject *tail = tail_of(run, put->queue);
    int failed = before == NULL || after == NULL || tail == NULL;
    if (!failed && next == committed)
        failed = PyList_Append(touched, put->queue) < 0; /* `undo_units` shortens the list */
    if (!failed) {
        Py_ssize_t size = PyByteArray_GET_SIZE(tail);
        failed = PyByteArray_Resize(tail, size + UNIT_SIZE) < 0;
        if (!failed) {
            write_unit((uint8_t *)PyByteArray_AS_STRING(tail) + size,
                       put->record.physical_offset, record_size(&put->record), put->tags_code);
            failed = PyObject_SetAttr(put->queue, state->next_offset, after) < 0;
            if (failed)
                PyByteArray_Resize(tail, size);
        }
    }
    if (!failed) {
        put->record.queue_offset = (uint64_t)next;
        put->next_offset = before;
        before = NULL;
    }
    Py_XDECREF(before);
    Py_XDECREF(after);
    Py_XDECREF(tail);
    return failed ? -1 : 0;
}

/* Undo `append_unit` of all messages that have a unit, last first; the exception that is set
   stays. */
void
undo_units(Run *run, PyObject *touched, Py_ssize_t touched_count)
{
    PyObject *raised = take_raised();
    for (Py_ssize_t at = run->count - 1; at >= 0; at--) {
        Put *put = &run->puts[at];
        if (put->next_offset == NULL)
            continue;
        PyObject *tail = tail_of(run, put->queue);
        if (tail == NULL || PyByteArray_Resize(tail, PyByteArray_GET_SIZE(tail) - UNIT_SIZE) < 0 ||
            PyObject_SetAttr(put->queue, run->state->next_offset, put->next_offset) < 0)
            PyErr_WriteUnraisable(put->queue);
        Py_XDECREF(tail);
    }
    if (PyList_SetSlice(touched, touched_count, PyList_GET_SIZE(touched), NULL) < 0)
        PyErr_WriteUnraisable(touched);
    raise_again(raised);
}

/* Append the units of all messages; -1: an exception is set and nothing has changed. */
int
append_units(Run *run, PyObject *touched)
{
    Py_ssize_t touched_count = PyList_GET_SIZE(touched);
    for (Py_ssize_t at = 0; at < run->count; at++)
        if (append_unit(run, &run->puts[at], touched) < 0) {
            undo_units(run, touched, touched_count);
            return -1;
        }
    return 0;
}

/* ---- step 3: records and index entries ------------------------------------------------- */

/* The records of all messages as one bytes object; NULL with an exception set. */
PyObject *
write_records(const Run *run)
{
    PyObject *records = new_bytes(run->records_size);
    if (records == NULL)
        return NULL;
    uint8_t *at = bytes_of(records);
    for (Py_ssize_t done = 0; done < run->count; done++)
        at = write_record(run->state, at, &run->puts[done].record);
    return records;
}

/* Add the index entries of a message whose keys are ASCII; -1 with MemoryError set. */
int
add_entries_of(Buffer *entries, const Put *put)
{
    const Record *record = &put->record;
    return add_entries(entries, put->topic_hash, &put->keys, (int64_t)record->physical_offset,
                       (int64_t)record->store_ms) == FAILED
               ? -1
               : 0;
}
