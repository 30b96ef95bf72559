/* A gRPC client's send: from its request to the parts of a send of remoting, and its answer.

   Messages without a type that the broker treats in another way, with the fields that clients send.
   Anything else, and whatever is refused, is for protobuf.

   Pure Python: `plain_send` of grpc_server/send_codec.py. */
#include "protobuf.h"

#define ENCODING_GZIP 2
#define MESSAGE_TYPE_FIFO 2
#define MESSAGE_TYPE_TRANSACTION 4
#define NORMAL 1
#define FIFO 2

/* The limits of `SendLimits` in grpc_server/send_codec.py. `reserved` is borrowed. */
typedef struct {
    PyObject *reserved;
    int64_t properties_count_max, properties_size_max, message_group_size_max;
} SendLimits;

typedef struct {
    Span namespace_, topic, tag, message_id, message_group, trace_context, born_host, body;
    Buffer users, keys; /* properties' text, and keys with blanks between them */
    int64_t users_count;
    size_t users_size;
    uint64_t encoding;
    int64_t born_ms; /* 0: it does not say */
} GrpcSend;

/* ---- what is checked ------------------------------------------------------------------- */

/* Whether a text is UTF-8 without control characters: U+0000 to 1F and 7F to 9F. */
static int
is_clean(Span text)
{
    for (size_t at = 0; at < text.size; at++) {
        uint8_t byte = text.bytes[at];
        if (byte < 0x20 || byte == 0x7F ||
            (byte == 0xC2 && at + 1 < text.size && text.bytes[at + 1] < 0xA0))
            return 0;
    }
    return is_utf8(text);
}

/* Whether a text is clean and has a visible ASCII character, so that it is not blank. */
static int
is_shown(Span text)
{
    int shown = 0;
    for (size_t at = 0; at < text.size; at++)
        shown |= text.bytes[at] > 0x20 && text.bytes[at] < 0x7F;
    return shown && is_clean(text);
}

/* Take a field that may be given once. */
static int
take_once(Span *place, Span value)
{
    if (place->bytes != NULL)
        return 0;
    *place = value;
    return 1;
}

#define SECONDS_MAX 253402300799 /* the end of the year 9999 */
#define NANOS_MAX 999999999

/* A Timestamp since 1970, in ms. */
static int
read_time(Span message, int64_t *ms)
{
    uint64_t seconds = 0, nanos = 0;
    ProtoField field;
    while (message.size) {
        if (!read_proto_field(&message, &field) ||
            (field.tag != VARINT(1) && field.tag != VARINT(2)))
            return 0;
        *(field.tag == VARINT(1) ? &seconds : &nanos) = field.number;
    }
    if (seconds > SECONDS_MAX || nanos > NANOS_MAX)
        return 0;
    *ms = (int64_t)(seconds * 1000 + nanos / 1000000);
    return 1;
}

static int
is_digest(Span message)
{
    ProtoField field;
    while (message.size)
        if (!read_proto_field(&message, &field) ||
            (field.tag != VARINT(1) && (field.tag != SIZED(2) || !is_utf8(field.bytes))))
            return 0;
    return 1;
}

/* ---- reading --------------------------------------------------------------------------- */

static int
read_resource(Span message, GrpcSend *send)
{
    ProtoField field;
    while (message.size) {
        if (!read_proto_field(&message, &field))
            return 0;
        if (field.tag == SIZED(1) ? !take_once(&send->namespace_, field.bytes)
                                  : field.tag != SIZED(2) || !take_once(&send->topic, field.bytes))
            return 0;
    }
    return is_ascii(send->namespace_) && is_clean(send->namespace_) && is_ascii(send->topic) &&
           is_clean(send->topic);
}

/* Add `name 0x01 value 0x02` to the properties of the user. */
static Outcome
read_user_property(Span entry, const SendLimits *limits, GrpcSend *send)
{
    Span name = {NULL, 0}, value = {NULL, 0};
    ProtoField field;
    while (entry.size) {
        if (!read_proto_field(&entry, &field))
            return NOT_FOR_ME;
        if (field.tag == SIZED(1) ? !take_once(&name, field.bytes)
                                  : field.tag != SIZED(2) || !take_once(&value, field.bytes))
            return NOT_FOR_ME;
    }
    if (name.size == 0 || !is_clean(name) || !is_clean(value))
        return NOT_FOR_ME;
    PyObject *key = bytes_from(name.bytes, name.size);
    if (key == NULL)
        return FAILED;
    int reserved = PySet_Contains(limits->reserved, key);
    Py_DECREF(key);
    if (reserved)
        return reserved < 0 ? FAILED : NOT_FOR_ME;
    send->users_size += name.size + value.size;
    send->users_count++;
    if (send->users_count > limits->properties_count_max ||
        send->users_size > (size_t)limits->properties_size_max)
        return NOT_FOR_ME;
    Buffer *users = &send->users;
    if (buffer_reserve(users, name.size + value.size + 2) < 0)
        return FAILED;
    uint8_t *at = store_bytes(users->bytes + users->size, name.bytes, name.size);
    *at++ = 1;
    at = store_bytes(at, value.bytes, value.size);
    *at++ = 2;
    users->size = (size_t)(at - users->bytes);
    return USUAL;
}

/* Whether a name is given twice; there are few. */
static int
has_twice(Span users)
{
    while (users.size) {
        const uint8_t *end = memchr(users.bytes, 1, users.size);
        size_t size = (size_t)(end - users.bytes) + 1; /* with the separator */
        const uint8_t *item_end = memchr(end, 2, users.size - size + 1);
        Span rest = {item_end + 1, users.size - (size_t)(item_end + 1 - users.bytes)};
        for (Span other = rest; other.size >= size;) {
            if (memcmp(other.bytes, users.bytes, size) == 0)
                return 1;
            const uint8_t *next = memchr(other.bytes, 2, other.size);
            other.size -= (size_t)(next + 1 - other.bytes);
            other.bytes = next + 1;
        }
        users = rest;
    }
    return 0;
}

static Outcome
add_key(Span key, Buffer *keys)
{
    if (!is_shown(key))
        return NOT_FOR_ME;
    if (buffer_reserve(keys, key.size + 1) < 0)
        return FAILED;
    if (keys->size)
        keys->bytes[keys->size++] = ' ';
    memcpy(keys->bytes + keys->size, key.bytes, key.size);
    keys->size += key.size;
    return USUAL;
}

/* A field of SystemProperties. */
static Outcome
read_system_field(const ProtoField *field, GrpcSend *send)
{
    Span value = field->bytes;
    int known = 0;
    switch (field->tag) {
    case SIZED(1):
        known = is_shown(value) && memchr(value.bytes, '|', value.size) == NULL &&
                take_once(&send->tag, value);
        break;
    case SIZED(2):
        return add_key(value, &send->keys);
    case SIZED(3):
        known = is_shown(value) && take_once(&send->message_id, value);
        break;
    case SIZED(4):
        known = is_digest(value);
        break;
    case VARINT(5):
        known = field->number <= ENCODING_GZIP;
        send->encoding = field->number;
        break;
    case VARINT(6):
        known = field->number < MESSAGE_TYPE_TRANSACTION;
        break;
    case SIZED(7): /* the time of its birth */
        known = read_time(value, &send->born_ms);
        break;
    case SIZED(8):
        known = is_clean(value) && take_once(&send->born_host, value);
        break;
    case VARINT(13): /* queue id */
        known = 1;
        break;
    case SIZED(17):
        known = is_shown(value) && take_once(&send->message_group, value);
        break;
    case SIZED(18):
        known = is_clean(value) && take_once(&send->trace_context, value);
        break;
    default: /* due times, priorities, transactions, lite topics, attempts, fields of the future */
        break;
    }
    return known ? USUAL : NOT_FOR_ME;
}

static Outcome
read_system(Span message, GrpcSend *send)
{
    ProtoField field;
    while (message.size) {
        if (!read_proto_field(&message, &field))
            return NOT_FOR_ME;
        Outcome read = read_system_field(&field, send);
        if (read != USUAL)
            return read;
    }
    return USUAL;
}

static Outcome
read_message(Span message, const SendLimits *limits, GrpcSend *send)
{
    ProtoField field;
    int has_topic = 0, has_system = 0;
    while (message.size) {
        Outcome read = NOT_FOR_ME;
        if (!read_proto_field(&message, &field))
            return NOT_FOR_ME;
        if (field.tag == SIZED(1) && !has_topic) {
            has_topic = 1;
            read = read_resource(field.bytes, send) ? USUAL : NOT_FOR_ME;
        } else if (field.tag == SIZED(2)) {
            read = read_user_property(field.bytes, limits, send);
        } else if (field.tag == SIZED(3) && !has_system) {
            has_system = 1;
            read = read_system(field.bytes, send);
        } else if (field.tag == SIZED(4)) {
            read = take_once(&send->body, field.bytes) ? USUAL : NOT_FOR_ME;
        }
        if (read != USUAL)
            return read;
    }
    if (send->topic.size == 0 || send->body.size == 0 || send->message_id.bytes == NULL ||
        (int64_t)send->message_group.size >= limits->message_group_size_max ||
        send->users_size + send->tag.size + send->keys.size >
            (size_t)limits->properties_size_max ||
        (send->users_count > 1 && has_twice((Span){send->users.bytes, send->users.size})))
        return NOT_FOR_ME;
    return USUAL;
}

/* ---- the result ------------------------------------------------------------------------ */

static size_t
property_size(size_t name_size, Span value)
{
    return value.size ? name_size + value.size + 2 : 0;
}

static uint8_t *
write_property(uint8_t *at, const char *name, size_t name_size, Span value)
{
    if (value.size == 0)
        return at;
    at = store_bytes(at, name, name_size);
    *at++ = 1;
    at = store_bytes(at, value.bytes, value.size);
    *at++ = 2;
    return at;
}

/* The properties as a send has them: the user's first. */
static PyObject *
write_properties(const GrpcSend *send, Span topic)
{
    Span keys = {send->keys.bytes, send->keys.size};
    size_t size = send->users.size + property_size(sizeof "TAGS" - 1, send->tag) +
                  property_size(sizeof "KEYS" - 1, keys) +
                  property_size(sizeof "UNIQ_KEY" - 1, send->message_id) +
                  property_size(sizeof "PGROUP" - 1, topic) +
                  property_size(sizeof "__SHARDINGKEY" - 1, send->message_group) +
                  property_size(sizeof "TRACE_CONTEXT" - 1, send->trace_context) +
                  property_size(sizeof "__BORNHOST" - 1, send->born_host);
    if (size > PROPERTIES_SIZE_MAX)
        Py_RETURN_NONE;
    PyObject *properties = new_bytes(size);
    if (properties == NULL)
        return NULL;
    uint8_t *at = store_bytes(bytes_of(properties), send->users.bytes, send->users.size);
    at = write_property(at, TEXT("TAGS"), send->tag);
    at = write_property(at, TEXT("KEYS"), keys);
    at = write_property(at, TEXT("UNIQ_KEY"), send->message_id);
    at = write_property(at, TEXT("PGROUP"), topic);
    at = write_property(at, TEXT("__SHARDINGKEY"), send->message_group);
    at = write_property(at, TEXT("TRACE_CONTEXT"), send->trace_context);
    write_property(at, TEXT("__BORNHOST"), send->born_host);
    return properties;
}

static PyObject *
text_or_none(Span text)
{
    return text.size ? new_text(text) : Py_NewRef(Py_None);
}

/* (topic, type, flag, message id, message group or None, properties, body, time of its birth in ms
   or 0), or None */
static PyObject *
make_send(const GrpcSend *send)
{
    Span topic = send->topic;
    if (topic.size > TOPIC_SIZE_MAX_V1)
        Py_RETURN_NONE;
    PyObject *properties = write_properties(send, topic);
    if (properties == NULL || properties == Py_None)
        return properties;
    return Py_BuildValue("(NiiNNNNL)", new_text(topic), send->message_group.size ? FIFO : NORMAL,
                         send->encoding == ENCODING_GZIP ? COMPRESSED : 0,
                         new_text(send->message_id), text_or_none(send->message_group), properties,
                         bytes_from(send->body.bytes, send->body.size), (long long)send->born_ms);
}

/* The only message of a SendMessageRequest; 0: there are others, or none. */
static int
only_message(Span request, Span *message)
{
    ProtoField field;
    if (!read_proto_field(&request, &field) || field.tag != SIZED(1) || request.size)
        return 0;
    *message = field.bytes;
    return 1;
}

static int
read_limits(PyObject *tuple, SendLimits *limits)
{
    if (!PyTuple_Check(tuple) || PyTuple_GET_SIZE(tuple) != 4 ||
        !PyAnySet_Check(PyTuple_GET_ITEM(tuple, 0)) ||
        !number_of(PyTuple_GET_ITEM(tuple, 1), 0, INT32_MAX, &limits->properties_count_max) ||
        !number_of(PyTuple_GET_ITEM(tuple, 2), 0, INT32_MAX, &limits->properties_size_max) ||
        !number_of(PyTuple_GET_ITEM(tuple, 3), 0, INT32_MAX, &limits->message_group_size_max)) {
        PyErr_SetString(PyExc_TypeError, "sends have a set of names and three limits");
        return -1;
    }
    limits->reserved = PyTuple_GET_ITEM(tuple, 0);
    return 0;
}

PyObject *
grpc_send(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    Span request, message;
    SendLimits limits;
    if (argument_count("grpc_send", count, 2) < 0 || bytes_argument(arguments[0], &request) < 0 ||
        read_limits(arguments[1], &limits) < 0)
        return NULL;
    if (!only_message(request, &message))
        Py_RETURN_NONE;
    GrpcSend send;
    memset(&send, 0, sizeof send);
    Outcome read = read_message(message, &limits, &send);
    PyObject *made = read == FAILED       ? NULL
                     : read == NOT_FOR_ME ? Py_NewRef(Py_None)
                                          : make_send(&send);
    buffer_free(&send.users);
    buffer_free(&send.keys);
    return made;
}

/* The answer to a send of one message that is stored: a status, and an entry with it and the id,
   which is that of a transaction, too. */
PyObject *
grpc_sent(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    Span status;
    int64_t offset;
    Py_ssize_t id_size;
    if (argument_count("grpc_sent", count, 3) < 0 || bytes_argument(arguments[0], &status) < 0)
        return NULL;
    if (!PyUnicode_Check(arguments[1]) || !number_of(arguments[2], 0, INT64_MAX, &offset)) {
        PyErr_SetString(PyExc_TypeError, "an answer has an id and an offset");
        return NULL;
    }
    const char *id = PyUnicode_AsUTF8AndSize(arguments[1], &id_size);
    if (id == NULL)
        return NULL;
    Span message_id = {(const uint8_t *)id, (size_t)id_size};
    size_t status_size = sized_size(SIZED(1), status.size);
    size_t entry_size = status_size + sized_size(SIZED(2), message_id.size) +
                        (id_size ? sized_size(SIZED(3), message_id.size) : 0) +
                        (offset ? 1 + varint_size((uint64_t)offset) : 0);
    PyObject *answer = new_bytes(status_size + sized_size(SIZED(2), entry_size));
    if (answer == NULL)
        return NULL;
    uint8_t *at = write_sized(bytes_of(answer), SIZED(1), status);
    at = write_varint(write_varint(at, SIZED(2)), entry_size);
    at = write_sized(write_sized(at, SIZED(1), status), SIZED(2), message_id);
    if (id_size)
        at = write_sized(at, SIZED(3), message_id);
    if (offset)
        write_varint(write_varint(at, VARINT(4)), (uint64_t)offset);
    return answer;
}
