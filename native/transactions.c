/* Transactions: from received frames to the parts of half messages and of ends.

   Only the usual forms: a half message is answered (send_header.c), an end is oneway and names its
   half message by both offsets. All rules, and which of them are stored, are Python's:
   broker/sending/transaction_runs.py.

   Pure Python: codec.py, `SendMessageProcessor`, `EndTransactionProcessor`. */
#include "native.h"

#define OFFSET_MAX INT64_C(999999999999999999) /* 18 digits */
#define OUTCOME_MAX 99
#define HALF_COUNT 11 /* fields of HalfFrame, and of EndFrame */
#define END_COUNT 6

/* The fields of an end; `bytes` is NULL where there is none. */
typedef struct {
    Span group, half_offset, queue_offset, outcome, id;
} EndFields;

/* Where a field with this name belongs; NULL: it does not matter. */
static Span *
end_place(EndFields *fields, Span name)
{
    if (equals(name, TEXT("producerGroup")))
        return &fields->group;
    if (equals(name, TEXT("commitLogOffset")))
        return &fields->half_offset;
    if (equals(name, TEXT("tranStateTableOffset")))
        return &fields->queue_offset;
    if (equals(name, TEXT("commitOrRollback")))
        return &fields->outcome;
    if (equals(name, TEXT("transactionId")))
        return &fields->id;
    return NULL;
}

static int
is_end_code(int32_t code)
{
    return code == END_TRANSACTION;
}

static int
read_binary_end(const Frame *frame, EndFields *fields, int32_t *flag)
{
    Span block, name, value;
    if (!binary_fields(frame, &block) || load_u16(frame->header.bytes) != END_TRANSACTION)
        return 0;
    *flag = (int32_t)load_u32(frame->header.bytes + 9);
    for (int seen = 0; block.size; seen++) {
        if (seen == FIELDS_MAX || !next_field(&block, &name, &value))
            return 0;
        Span *place = end_place(fields, name);
        if (place != NULL)
            *place = value;
    }
    return 1;
}

static int
read_json_end(const Frame *frame, Unescaped *unescaped, EndFields *fields, int32_t *flag)
{
    JsonHeader header;
    if (!read_json_header(frame->header, is_end_code, &header, unescaped))
        return 0;
    *flag = header.flag;
    for (int at = 0; at < header.field_count; at++) {
        Span *place = end_place(fields, header.fields[at].name);
        if (place != NULL)
            *place = header.fields[at].value;
    }
    return 1;
}

/* The parts of a usual end; the spans are of the received bytes, or unescaped. */
typedef struct {
    Span group, id;
    uint64_t half_offset, queue_offset, outcome;
} End;

static int
read_end(const Frame *frame, Unescaped *unescaped, End *end)
{
    EndFields fields;
    int32_t flag;
    memset(&fields, 0, sizeof fields);
    if (!(frame->serialization == JSON ? read_json_end(frame, unescaped, &fields, &flag)
                                       : read_binary_end(frame, &fields, &flag)))
        return 0;
    end->group = fields.group;
    end->id = fields.id;
    return flag == ONEWAY_FLAG && fields.group.size != 0 &&
           read_decimal(fields.half_offset, OFFSET_MAX, &end->half_offset) &&
           read_decimal(fields.queue_offset, OFFSET_MAX, &end->queue_offset) &&
           read_decimal(fields.outcome, OUTCOME_MAX, &end->outcome);
}

/* Whether a frame is a usual end. */
int
is_end(const Frame *frame, Unescaped *unescaped)
{
    End end;
    return read_end(frame, unescaped, &end);
}

/* What the taken frames are made of; borrowed from the caller. */
typedef struct {
    State *state;
    PyObject *half_class, *end_class, *taken;
    Span added;
    FrameLimits limits;
    Unescaped unescaped;
} Taking;

/* Make an object of its parts, which are released, and append it; -1 with an exception set. */
static int
append_made(const Taking *taking, PyObject *class, PyObject **parts, int count)
{
    int complete = 1, failed = -1;
    for (int part = 0; part < count; part++)
        complete &= parts[part] != NULL;
    PyObject *made = complete ? PyObject_Vectorcall(class, parts, (size_t)count, NULL) : NULL;
    if (made != NULL)
        failed = PyList_Append(taking->taken, made);
    Py_XDECREF(made);
    for (int part = 0; part < count; part++)
        Py_XDECREF(parts[part]);
    return failed;
}

/* The properties with those of the broker; without the bytes of the unique key, if it is given. */
static PyObject *
joined_properties(const Taking *taking, const SendHeader *send, Span key)
{
    Span own = send->properties, added = taking->added;
    size_t separators = own.size && added.size && own.bytes[own.size - 1] != 2;
    PyObject *joined = new_bytes(own.size - key.size + separators + added.size);
    if (joined == NULL)
        return NULL;
    uint8_t *at = bytes_of(joined);
    size_t before = key.size ? (size_t)(key.bytes - own.bytes) : own.size;
    at = store_bytes(at, own.bytes, before);
    if (key.size)
        at = store_bytes(at, key.bytes + key.size, own.size - before - key.size);
    if (separators)
        *at++ = 2;
    store_bytes(at, added.bytes, added.size);
    return joined;
}

static int
append_half(const Taking *taking, const SendHeader *send, Py_ssize_t end)
{
    Span key = send->keys.unique_key, whole = {NULL, 0};
    PyObject *parts[HALF_COUNT] = {
        PyLong_FromSsize_t(end),
        PyLong_FromLong((int32_t)send->opaque),
        PyLong_FromLong(send->is_json ? JSON : ROCKETMQ),
        field_text(taking->state, (Span){(const uint8_t *)"topic", 5}, send->topic),
        PyLong_FromUnsignedLong(send->queue_id),
        PyLong_FromUnsignedLongLong(send->born_ms),
        PyLong_FromUnsignedLong(send->sys_flag),
        joined_properties(taking, send, whole),
        joined_properties(taking, send, key),
        bytes_from(key.bytes, key.size),
        bytes_from(send->body.bytes, send->body.size),
    };
    return append_made(taking, taking->half_class, parts, HALF_COUNT);
}

static int
append_end(const Taking *taking, const End *read, Py_ssize_t end)
{
    PyObject *parts[END_COUNT] = {
        PyLong_FromSsize_t(end),
        PyLong_FromUnsignedLongLong(read->half_offset),
        PyLong_FromUnsignedLongLong(read->queue_offset),
        PyLong_FromUnsignedLongLong(read->outcome),
        field_text(taking->state, (Span){(const uint8_t *)"producerGroup", 13}, read->group),
        new_text(read->id),
    };
    return append_made(taking, taking->end_class, parts, END_COUNT);
}

/* Take a frame. USUAL: it is appended; NOT_FOR_ME: it is another one. */
static Outcome
take_frame(Taking *taking, const Frame *frame, Py_ssize_t frame_end)
{
    SendHeader send;
    End end;
    taking->unescaped.size = 0; /* nothing points to the strings of the frame before */
    SendKind kind = read_send(frame, &taking->unescaped, &send);
    if (kind == HALF_MESSAGE)
        return append_half(taking, &send, frame_end) < 0 ? FAILED : USUAL;
    taking->unescaped.size = 0;
    if (kind != OTHER_SEND || !read_end(frame, &taking->unescaped, &end))
        return NOT_FOR_ME;
    return append_end(taking, &end, frame_end) < 0 ? FAILED : USUAL;
}

/* take_transactions(half_class, end_class, added, header_size_max, data, position,
                     frame_size_max, taken) */
PyObject *
take_transactions(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    Taking taking = {.state = state_of(module)};
    Span data;
    int64_t header_size_max, position, frame_size_max;
    if (argument_count("take_transactions", count, 8) < 0 ||
        bytes_argument(arguments[2], &taking.added) < 0 || bytes_argument(arguments[4], &data) < 0)
        return NULL;
    taking.half_class = arguments[0];
    taking.end_class = arguments[1];
    taking.taken = arguments[7];
    if (!PyList_CheckExact(taking.taken)) {
        PyErr_SetString(PyExc_TypeError, "take_transactions() appends to a list");
        return NULL;
    }
    if (!number_of(arguments[3], 0, INT32_MAX, &header_size_max) ||
        !number_of(arguments[5], 0, (int64_t)data.size, &position) ||
        !number_of(arguments[6], 0, INT32_MAX, &frame_size_max))
        Py_RETURN_NONE;
    taking.limits = (FrameLimits){(size_t)frame_size_max, (size_t)header_size_max};
    data.bytes += position;
    data.size -= (size_t)position;
    taking.unescaped.size_max = data.size;
    Outcome taken = USUAL;
    Frame frame;
    for (int seen = 0; seen < RUN_MAX && next_frame(data, taking.limits, &frame); seen++) {
        position += (int64_t)frame.size;
        taken = take_frame(&taking, &frame, (Py_ssize_t)position);
        if (taken != USUAL)
            break;
        data.bytes += frame.size;
        data.size -= frame.size;
    }
    PyMem_Free(taking.unescaped.bytes);
    if (taken == FAILED)
        return NULL;
    Py_RETURN_NONE;
}
