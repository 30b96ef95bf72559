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
    PyObject *number = PyLong_FromUnsignedLong(queue_id);
    if (number == NULL)
        return FAILED;
    PyObject *key = PyTuple_Pack(2, topic, number);
    Py_DECREF(number);
    if (key == NULL)
        return FAILED;
    /* The queue is released with the run. */
    Outcome found = find_state(run->state, run->queues, key, &put->queue);
    Py_DECREF(key);
    if (found != USUAL)
        return found;
    int64_t magic, topic_hash;
    if (put->queue->topic_field == NULL ||
        !number_of(put->queue->magic, INT32_MIN, INT32_MAX, &magic) ||
        (uint32_t)magic != MAGIC_V1 ||
        !number_of(put->queue->topic_hash, 0, UINT32_MAX, &topic_hash))
        return NOT_FOR_ME;
    put->topic_hash = (uint32_t)topic_hash;
    put->record.topic_field = span_of(put->queue->topic_field);
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

/* Append the unit of a record to its queue, and give the record its place there; -1: an exception is
   set, and the caller shortens the list. */
int
append_unit(Queue *queue, Record *record, int64_t tags_code, PyObject *touched)
{
    int64_t next = queue->next_offset;
    if (next == queue->committed_offset && PyList_Append(touched, (PyObject *)queue) < 0)
        return -1;
    uint8_t *at = grow_tail(queue, UNIT_SIZE, 1);
    if (at == NULL)
        return -1;
    write_unit(at, record->physical_offset, record_size(record), tags_code);
    record->queue_offset = (uint64_t)next;
    return 0;
}

/* Shorten the list of queues; the exception that is set stays. */
void
undo_touched(PyObject *touched, Py_ssize_t touched_count)
{
    PyObject *raised = take_raised();
    if (PyList_SetSlice(touched, touched_count, PyList_GET_SIZE(touched), NULL) < 0)
        PyErr_WriteUnraisable(touched);
    raise_again(raised);
}

/* Undo `append_put` of all messages that have a unit, last first; the exception that is set
   stays. */
void
undo_units(Run *run, PyObject *touched, Py_ssize_t touched_count)
{
    PyObject *raised = take_raised();
    for (Py_ssize_t at = run->count - 1; at >= 0; at--) {
        Queue *queue = run->puts[at].queue;
        if (run->puts[at].has_unit && remove_unit(queue) < 0)
            PyErr_WriteUnraisable((PyObject *)queue);
    }
    raise_again(raised);
    undo_touched(touched, touched_count);
}

/* Append the units of all messages; -1: an exception is set and nothing has changed. */
int
append_units(Run *run, PyObject *touched)
{
    Py_ssize_t touched_count = PyList_GET_SIZE(touched);
    for (Py_ssize_t at = 0; at < run->count; at++) {
        Put *put = &run->puts[at];
        if (append_unit(put->queue, &put->record, put->tags_code, touched) < 0) {
            undo_units(run, touched, touched_count);
            return -1;
        }
        put->has_unit = 1;
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
