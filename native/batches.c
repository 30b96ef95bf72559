/* Batches: from the body of a SEND_BATCH_MESSAGE to records, units and index entries.

   Pure Python: `MessageAppender._put_usual_batch`. */
#include "native.h"

#define ENTRY_HEAD_SIZE 20 /* total_size, magic, body_crc, flag, body_length */

/* One pass over a batch: the first measures, the second writes. */
typedef struct {
    const State *state;
    Record record;         /* what all messages share; the rest is set for each */
    uint32_t topic_hash;
    uint8_t *records, *units; /* NULL while it measures */
    PyObject *offsets;        /* a list; borrowed */
    Buffer *entries;
    size_t records_size;
    Py_ssize_t messages;
} Batch;

/* Cut the next message off a batch's body; 0: it is malformed. */
int
next_message(Span *body, Record *record)
{
    if (body->size < ENTRY_HEAD_SIZE + 2)
        return 0;
    const uint8_t *at = body->bytes;
    size_t size = load_u32(at + 16), left = body->size - ENTRY_HEAD_SIZE - 2;
    if (size > INT32_MAX || size > left)
        return 0;
    record->flag = load_u32(at + 12);
    record->body = (Span){at + ENTRY_HEAD_SIZE, size};
    at += ENTRY_HEAD_SIZE + size;
    left -= size;
    size_t properties_size = load_u16(at);
    if (properties_size > PROPERTIES_SIZE_MAX || properties_size > left)
        return 0;
    record->properties = (Span){at + 2, properties_size};
    body->bytes = at + 2 + properties_size;
    body->size = left - properties_size;
    return 1;
}

/* Write the message that `batch->record` has. */
static Outcome
write_message(Batch *batch, size_t size)
{
    Record *record = &batch->record;
    Keys keys = find_keys(record->properties);
    if (!is_ascii(keys.tags))
        return NOT_FOR_ME;
    Outcome added = add_entries(batch->entries, batch->topic_hash, &keys,
                            (int64_t)record->physical_offset, (int64_t)record->store_ms);
    if (added != USUAL)
        return added;
    PyObject *offset = PyLong_FromUnsignedLongLong(record->physical_offset);
    if (offset == NULL)
        return FAILED;
    PyList_SET_ITEM(batch->offsets, batch->messages, offset);
    batch->records = write_record(batch->state, batch->records, record);
    int64_t tags_code = (int32_t)java_hash(0, keys.tags);
    batch->units = write_unit(batch->units, record->physical_offset, size, tags_code);
    return USUAL;
}

/* Go through all messages. */
static Outcome
pass_over(Batch *batch, Span body, size_t size_max)
{
    Record *record = &batch->record;
    while (body.size) {
        if (!next_message(&body, record))
            return NOT_FOR_ME;
        size_t properties_size =
            record->properties.size + separator_size(record) + record->added.size;
        size_t size = record_size(record);
        if (properties_size > PROPERTIES_SIZE_MAX || size > size_max - batch->records_size ||
            needs_pure_record(record->properties))
            return NOT_FOR_ME;
        if (batch->records != NULL) {
            Outcome written = write_message(batch, size);
            if (written != USUAL)
                return written;
        }
        batch->records_size += size;
        batch->messages++;
        record->physical_offset += size;
        record->queue_offset++;
    }
    return batch->messages > 0 ? USUAL : NOT_FOR_ME;
}

/* Measure, then write. Returns the tuple, None, or NULL with an exception set. */
static PyObject *
pack(Batch *batch, Span body, size_t size_max)
{
    Batch measured = *batch;
    if (pass_over(&measured, body, size_max) != USUAL)
        Py_RETURN_NONE;
    Buffer entries = {NULL, 0, 0};
    PyObject *records = new_bytes(measured.records_size);
    PyObject *units = new_bytes((size_t)measured.messages * UNIT_SIZE);
    PyObject *offsets = PyList_New(measured.messages);
    PyObject *packed = NULL;
    if (records != NULL && units != NULL && offsets != NULL &&
        buffer_reserve(&entries, (size_t)measured.messages * ENTRY_SIZE) == 0) {
        batch->records = bytes_of(records);
        batch->units = bytes_of(units);
        batch->offsets = offsets;
        batch->entries = &entries;
        Outcome written = pass_over(batch, body, size_max);
        if (written == USUAL)
            packed = Py_BuildValue("(OOOy#)", records, units, offsets, entries.bytes,
                                   (Py_ssize_t)entries.size);
        else if (written == NOT_FOR_ME)
            packed = Py_NewRef(Py_None);
    }
    Py_XDECREF(records);
    Py_XDECREF(units);
    Py_XDECREF(offsets);
    buffer_free(&entries);
    return packed;
}

/* Whether properties of a batch's message, or all its bytes, have no property that needs a rule. All
   names with a rule but DELAY have an underscore. Pure Python: `admission.may_break_batch_rules`. */
int
needs_no_batch_rule(Span text)
{
    if (find_bytes(text, TEXT("DELAY")))
        return 0;
    const uint8_t *at = text.bytes, *end = at + text.size;
    while (at < end && (at = memchr(at, '_', (size_t)(end - at))) != NULL) {
        /* the underscore of UNIQ_KEY, and the byte after the name */
        if (at - text.bytes < 4 || end - at < 5 || memcmp(at - 4, "UNIQ_KEY\1", 9) != 0)
            return 0;
        at++;
    }
    return 1;
}

/* is_plain_batch(body) */
PyObject *
is_plain_batch(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    Span body;
    if (argument_count("is_plain_batch", count, 1) < 0 || bytes_argument(arguments[0], &body) < 0)
        return NULL;
    return PyBool_FromLong(needs_no_batch_rule(body));
}

/* pack_batch(body, added, queue_id, queue_offset, physical_offset, file_end, topic_field,
              topic_hash, sys_flag, born_ms, born_host, store_ms, store_host, reconsume_times)
   -> None: not for me, or (records, units, physical offsets, index entries) */
PyObject *
pack_batch(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    Span body, added, topic_field, born_host, store_host;
    int64_t queue_id, queue_offset, physical_offset, file_end, topic_hash, sys_flag, born_ms,
        store_ms, reconsume_times;
    if (argument_count("pack_batch", count, 14) < 0 || bytes_argument(arguments[0], &body) < 0 ||
        bytes_argument(arguments[1], &added) < 0 ||
        bytes_argument(arguments[6], &topic_field) < 0 ||
        bytes_argument(arguments[10], &born_host) < 0 ||
        bytes_argument(arguments[12], &store_host) < 0)
        return NULL;
    if (!number_of(arguments[2], INT32_MIN, INT32_MAX, &queue_id) ||
        !number_of(arguments[3], 0, INT64_MAX / 2, &queue_offset) ||
        !number_of(arguments[4], 0, INT64_MAX / 2, &physical_offset) ||
        !number_of(arguments[5], -1, INT64_MAX / 2, &file_end) ||
        !number_of(arguments[7], 0, UINT32_MAX, &topic_hash) ||
        !number_of(arguments[8], INT32_MIN, INT32_MAX, &sys_flag) ||
        !number_of(arguments[9], INT64_MIN, INT64_MAX, &born_ms) ||
        !number_of(arguments[11], INT64_MIN, INT64_MAX, &store_ms) ||
        !number_of(arguments[13], INT32_MIN, INT32_MAX, &reconsume_times) ||
        born_host.size != HOST_SIZE || store_host.size != HOST_SIZE ||
        find_bytes(added, TEXT("UNIQ_KEY\1")) || find_bytes(added, TEXT("KEYS\1")) ||
        file_end - physical_offset <= 8) /* room for a blank after the records */
        Py_RETURN_NONE;
    int64_t room = file_end - physical_offset - 8;
    Batch batch = {
        .state = state_of(module),
        .record =
            {
                .queue_id = (uint32_t)queue_id,
                .sys_flag = (uint32_t)sys_flag,
                .reconsume_times = (uint32_t)reconsume_times,
                .queue_offset = (uint64_t)queue_offset,
                .physical_offset = (uint64_t)physical_offset,
                .born_ms = (uint64_t)born_ms,
                .store_ms = (uint64_t)store_ms,
                .born_host = born_host.bytes,
                .store_host = store_host.bytes,
                .topic_field = topic_field,
                .added = added,
            },
        .topic_hash = (uint32_t)topic_hash,
    };
    return pack(&batch, body, room > INT32_MAX ? INT32_MAX : (size_t)room);
}
