/* Messages of a pull's answer, from records to objects.

   Pure Python: `decode_messages` of remoting/message_codec.py; the layout is in record_schema.py. */
#include "native.h"

#define FIELDS_COUNT 17

/* The parts of the record at the beginning of `data`; 0: there is none, or it is not plain. */
int
next_record(Span data, PlainRecord *record)
{
    if (data.size < RECORD_HEAD_SIZE + 3)
        return 0;
    const uint8_t *head = data.bytes;
    size_t size = load_u32(head), body_size = load_u32(head + 84);
    if (size < RECORD_HEAD_SIZE + 3 || size > data.size || load_u32(head + 4) != MAGIC_V1 ||
        load_u32(head + 36) & (COMPRESSED | HOSTS_V6) || body_size > size - RECORD_HEAD_SIZE - 3)
        return 0;
    const uint8_t *topic = head + RECORD_HEAD_SIZE + body_size;
    size_t topic_size = topic[0], left = size - RECORD_HEAD_SIZE - body_size - 3;
    if (topic_size > TOPIC_SIZE_MAX_V1 || topic_size > left ||
        !is_ascii((Span){topic + 1, topic_size}))
        return 0;
    const uint8_t *properties = topic + 1 + topic_size;
    size_t properties_size = load_u16(properties);
    if (properties_size > PROPERTIES_SIZE_MAX || properties_size != left - topic_size)
        return 0;
    record->head = head;
    record->body = (Span){head + RECORD_HEAD_SIZE, body_size};
    record->topic = (Span){topic + 1, topic_size};
    record->properties = (Span){properties + 2, properties_size};
    record->size = size;
    return 1;
}

/* A new object, or that of the record before if it has the same bytes, as nearly all have. */
static PyObject *
bytes_or_last(const uint8_t *at, size_t size, const uint8_t *last_at, PyObject *last)
{
    if (last != NULL && memcmp(at, last_at, size) == 0)
        return Py_NewRef(last);
    return bytes_from(at, size);
}

/* The record before, and its objects that the next one nearly always shares. */
typedef struct {
    PlainRecord record;
    PyObject *topic, *born_host, *store_host;
} Last;

static void
remember(Last *last, const PlainRecord *record, PyObject *const *fields)
{
    last->record = *record;
    Py_XSETREF(last->topic, Py_NewRef(fields[0]));
    Py_XSETREF(last->born_host, Py_NewRef(fields[9]));
    Py_XSETREF(last->store_host, Py_NewRef(fields[11]));
}

static void
forget(Last *last)
{
    Py_CLEAR(last->topic);
    Py_CLEAR(last->born_host);
    Py_CLEAR(last->store_host);
}

static PyObject *
new_int32(const uint8_t *at)
{
    return PyLong_FromLong((int32_t)load_u32(at));
}

static PyObject *
new_uint32(const uint8_t *at)
{
    return PyLong_FromUnsignedLong(load_u32(at));
}

static PyObject *
new_int64(const uint8_t *at)
{
    return PyLong_FromLongLong((int64_t)load_u64(at));
}

static PyObject *
make_message(PyObject *message_class, const PlainRecord *record, Last *last)
{
    const uint8_t *head = record->head, *last_head = last->record.head;
    Span last_topic = last->record.topic;
    PyObject *topic;
    if (last->topic != NULL && equals(record->topic, last_topic.bytes, last_topic.size))
        topic = Py_NewRef(last->topic);
    else
        topic = PyUnicode_DecodeASCII((const char *)record->topic.bytes,
                                      (Py_ssize_t)record->topic.size, NULL);
    PyObject *fields[FIELDS_COUNT] = {
        topic,
        new_int32(head + 12), /* queue_id */
        new_int64(head + 20), /* queue_offset */
        new_int64(head + 28), /* physical_offset */
        bytes_from(record->body.bytes, record->body.size),
        bytes_from(record->properties.bytes, record->properties.size),
        new_int32(head + 16), /* flag */
        new_int32(head + 36), /* sys_flag */
        new_int64(head + 40), /* born_timestamp_ms */
        bytes_or_last(head + 48, HOST_SIZE, last_head + 48, last->born_host),
        new_int64(head + 56), /* store_timestamp_ms */
        bytes_or_last(head + 64, HOST_SIZE, last_head + 64, last->store_host),
        new_int32(head + 72), /* reconsume_times */
        new_int64(head + 76), /* prepared_transaction_offset */
        PyLong_FromSize_t(record->size),
        new_int32(head + 4), /* magic */
        new_uint32(head + 8), /* body_crc */
    };
    PyObject *message = NULL;
    int complete = 1;
    for (int field = 0; field < FIELDS_COUNT; field++)
        complete &= fields[field] != NULL;
    if (complete) {
        remember(last, record, fields);
        message = PyObject_Vectorcall(message_class, fields, FIELDS_COUNT, NULL);
    }
    for (int field = 0; field < FIELDS_COUNT; field++)
        Py_XDECREF(fields[field]);
    return message;
}

PyObject *
decode_records(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    if (argument_count("decode_records", count, 4) < 0)
        return NULL;
    PyObject *message_class = arguments[0], *received = arguments[1], *messages = arguments[3];
    size_t position = PyLong_AsSize_t(arguments[2]);
    if (PyErr_Occurred())
        return NULL;
    if (!PyList_CheckExact(messages)) {
        PyErr_SetString(PyExc_TypeError, "decode_records() appends to a list");
        return NULL;
    }
    if (!PyBytes_CheckExact(received) || position > (size_t)PyBytes_GET_SIZE(received))
        return PyLong_FromSize_t(position);
    Span data = span_of(received);
    data.bytes += position;
    data.size -= position;
    PlainRecord record;
    Last last = {{data.bytes, data, data, data, 0}, NULL, NULL, NULL};
    int failed = 0;
    while (!failed && next_record(data, &record)) {
        PyObject *message = make_message(message_class, &record, &last);
        failed = message == NULL || PyList_Append(messages, message) < 0;
        Py_XDECREF(message);
        data.bytes += record.size;
        data.size -= record.size;
        position += record.size;
    }
    forget(&last);
    return failed ? NULL : PyLong_FromSize_t(position);
}
