/* What a gRPC client receives, and its acknowledgements.

   A record becomes an encoded ReceiveMessageResponse; a request of acknowledgements with one entry is
   read, and its answer written. Anything unusual is for protobuf.

   Pure Python: `received_message` of grpc_server/messages.py, `ack_message` of
   grpc_server/methods/receiving.py. */
#include "protobuf.h"

#define HOST_TEXT_SIZE 21  /* 255.255.255.255:65535 */
#define PORT_MAX 65535
#define TIME_SIZE_MAX 22   /* two varints with their tags */
#define HEAD_SIZE_MAX 128  /* of fields with numbers, and of the message's own */
#define MD5 2
#define IDENTITY 1
#define NORMAL 1
#define FIFO 2
#define RECEIPT_FIELDS 9

/* ---- a received message ---------------------------------------------------------------- */

typedef struct {
    PyObject *reserved, *special; /* borrowed: names that are no user property's, and those of
                                     messages that are for protobuf */
    Span topic, body, properties, born_host, store_host, digest, handle;
    int64_t queue_id, queue_offset, born_ms, store_ms, attempt;
    /* of the properties */
    Span tag, keys, message_id, message_group, trace_context, born_text;
    Buffer users; /* encoded entries */
} Received;

static int
add_user(Buffer *users, Span name, Span value)
{
    size_t size = sized_size(SIZED(1), name.size) + sized_size(SIZED(2), value.size);
    if (buffer_reserve(users, sized_size(SIZED(2), size)) < 0)
        return -1;
    uint8_t *at = users->bytes + users->size;
    at = write_varint(write_varint(at, SIZED(2)), size);
    at = write_sized(write_sized(at, SIZED(1), name), SIZED(2), value);
    users->size = (size_t)(at - users->bytes);
    return 0;
}

/* Where a reserved property goes; NULL: nowhere. */
static Span *
place_of(Received *received, Span name)
{
    if (equals(name, TEXT("TAGS")))
        return &received->tag;
    if (equals(name, TEXT("KEYS")))
        return &received->keys;
    if (equals(name, TEXT("UNIQ_KEY")))
        return &received->message_id;
    if (equals(name, TEXT("__SHARDINGKEY")))
        return &received->message_group;
    if (equals(name, TEXT("TRACE_CONTEXT")))
        return &received->trace_context;
    if (equals(name, TEXT("__BORNHOST")))
        return &received->born_text;
    return NULL;
}

static Outcome
read_property(Received *received, Span name, Span value)
{
    Span *place = place_of(received, name);
    if (place != NULL)
        *place = value; /* some are the user's, too */
    PyObject *key = bytes_from(name.bytes, name.size);
    if (key == NULL)
        return FAILED;
    int reserved = PySet_Contains(received->reserved, key);
    int special = reserved > 0 ? PySet_Contains(received->special, key) : 0;
    Py_DECREF(key);
    if (reserved < 0 || special < 0)
        return FAILED;
    if (special)
        return NOT_FOR_ME;
    if (!reserved && add_user(&received->users, name, value) < 0)
        return FAILED;
    return USUAL;
}

static Outcome
read_properties(Received *received)
{
    const uint8_t *at = received->properties.bytes, *end = at + received->properties.size;
    while (at < end) {
        const uint8_t *separator = memchr(at, 2, (size_t)(end - at));
        const uint8_t *item_end = separator ? separator : end;
        const uint8_t *name_end = memchr(at, 1, (size_t)(item_end - at));
        if (name_end != NULL && name_end > at && name_end + 1 < item_end) {
            Span name = {at, (size_t)(name_end - at)};
            Span value = {name_end + 1, (size_t)(item_end - name_end - 1)};
            Outcome read = read_property(received, name, value);
            if (read != USUAL)
                return read;
        }
        at = item_end + 1;
    }
    return received->message_id.size ? USUAL : NOT_FOR_ME;
}

/* Write `ip:port`; returns its size. */
static size_t
write_host(uint8_t *at, const uint8_t *host)
{
    uint8_t *start = at;
    for (int part = 0; part < 4; part++) {
        at += write_decimal(at, host[part]);
        *at++ = part < 3 ? '.' : ':';
    }
    at += write_decimal(at, load_u32(host + 4));
    return (size_t)(at - start);
}

/* A Timestamp or a Duration. */
static uint8_t *
write_time(uint8_t *at, uint32_t tag, int64_t milliseconds)
{
    uint8_t time[TIME_SIZE_MAX], *end = time;
    uint64_t seconds = (uint64_t)milliseconds / 1000, rest = (uint64_t)milliseconds % 1000;
    if (seconds)
        end = write_varint(write_varint(end, VARINT(1)), seconds);
    if (rest)
        end = write_varint(write_varint(end, VARINT(2)), rest * 1000000);
    return write_sized(at, tag, (Span){time, (size_t)(end - time)});
}

static uint8_t *
write_number(uint8_t *at, uint32_t tag, int64_t number)
{
    return write_varint(write_varint(at, tag), (uint64_t)number);
}

static uint8_t *
write_keys(uint8_t *at, Span keys)
{
    while (keys.size) {
        const uint8_t *blank = memchr(keys.bytes, ' ', keys.size);
        size_t size = blank ? (size_t)(blank - keys.bytes) : keys.size;
        if (size)
            at = write_sized(at, SIZED(2), (Span){keys.bytes, size});
        size += blank != NULL;
        keys.bytes += size;
        keys.size -= size;
    }
    return at;
}

/* SystemProperties; `at` has room for all texts, three bytes for each key, and HEAD_SIZE_MAX. */
static uint8_t *
write_system(uint8_t *at, const Received *received)
{
    uint8_t digest[64], *end = write_number(digest, VARINT(1), MD5);
    end = write_sized(end, SIZED(2), received->digest);
    uint8_t born[HOST_TEXT_SIZE + 10], store[HOST_TEXT_SIZE + 10];
    Span born_host = received->born_text;
    if (born_host.size == 0)
        born_host = (Span){born, write_host(born, received->born_host.bytes)};
    if (received->tag.size)
        at = write_sized(at, SIZED(1), received->tag);
    at = write_keys(at, received->keys);
    at = write_sized(at, SIZED(3), received->message_id);
    at = write_sized(at, SIZED(4), (Span){digest, (size_t)(end - digest)});
    at = write_number(at, VARINT(5), IDENTITY);
    at = write_number(at, VARINT(6), received->message_group.size ? FIFO : NORMAL);
    at = write_time(at, SIZED(7), received->born_ms);
    at = write_sized(at, SIZED(8), born_host);
    at = write_time(at, SIZED(9), received->store_ms);
    at = write_sized(at, SIZED(10), (Span){store, write_host(store, received->store_host.bytes)});
    at = write_sized(at, SIZED(12), received->handle);
    if (received->queue_id)
        at = write_number(at, VARINT(13), received->queue_id);
    at = write_number(at, VARINT(14), received->queue_offset);
    at = write_number(at, VARINT(16), received->attempt);
    if (received->message_group.size)
        at = write_sized(at, SIZED(17), received->message_group);
    if (received->trace_context.size)
        at = write_sized(at, SIZED(18), received->trace_context);
    return at;
}

static PyObject *
write_received(const Received *received)
{
    /* A key takes at most three bytes more than its text and its blank. */
    size_t texts = received->tag.size + 4 * received->keys.size + received->message_id.size +
                   received->message_group.size + received->trace_context.size +
                   received->born_text.size + received->handle.size + received->digest.size;
    uint8_t *memory = PyMem_Malloc(texts + 4 * HEAD_SIZE_MAX);
    if (memory == NULL)
        return PyErr_NoMemory();
    Span system = {memory, (size_t)(write_system(memory, received) - memory)};
    size_t topic_size = sized_size(SIZED(1), received->topic.size);
    size_t system_size = sized_size(SIZED(3), system.size);
    size_t body_size = received->body.size ? sized_size(SIZED(4), received->body.size) : 0;
    size_t size = topic_size + received->users.size + system_size + body_size;
    PyObject *encoded = new_bytes(sized_size(SIZED(2), size));
    if (encoded != NULL) {
        uint8_t *at = write_varint(write_varint(bytes_of(encoded), SIZED(2)), size);
        at = write_sized(at, SIZED(1), received->topic);
        at = store_bytes(at, received->users.bytes, received->users.size);
        at = write_sized(at, SIZED(3), system);
        if (received->body.size)
            write_sized(at, SIZED(4), received->body);
    }
    PyMem_Free(memory);
    return encoded;
}

static int
ascii_argument(PyObject *argument, Span *span)
{
    if (!PyUnicode_Check(argument) || !PyUnicode_IS_ASCII(argument)) {
        PyErr_SetString(PyExc_TypeError, "a text of ASCII characters expected");
        return -1;
    }
    *span = (Span){PyUnicode_DATA(argument), (size_t)PyUnicode_GET_LENGTH(argument)};
    return 0;
}

static int
read_received(PyObject *const *arguments, Received *received)
{
    PyObject *rules = arguments[0];
    if (!PyTuple_Check(rules) || PyTuple_GET_SIZE(rules) != 2 ||
        !PyAnySet_Check(PyTuple_GET_ITEM(rules, 0)) || !PyAnySet_Check(PyTuple_GET_ITEM(rules, 1))) {
        PyErr_SetString(PyExc_TypeError, "messages have two sets of names");
        return -1;
    }
    received->reserved = PyTuple_GET_ITEM(rules, 0);
    received->special = PyTuple_GET_ITEM(rules, 1);
    if (bytes_argument(arguments[1], &received->topic) < 0 ||
        bytes_argument(arguments[2], &received->body) < 0 ||
        bytes_argument(arguments[3], &received->properties) < 0 ||
        bytes_argument(arguments[6], &received->born_host) < 0 ||
        bytes_argument(arguments[8], &received->store_host) < 0 ||
        ascii_argument(arguments[9], &received->digest) < 0 ||
        ascii_argument(arguments[10], &received->handle) < 0)
        return -1;
    return 0;
}

/* grpc_message(rules, topic, body, properties, queue_id, born_ms, born_host, store_ms, store_host,
                digest, handle, queue_offset, attempt) -> bytes, or None: not for me */
PyObject *
grpc_message(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    Received received;
    memset(&received, 0, sizeof received);
    if (argument_count("grpc_message", count, 13) < 0 || read_received(arguments, &received) < 0)
        return NULL;
    if (!number_of(arguments[4], 0, INT32_MAX, &received.queue_id) ||
        !number_of(arguments[5], 0, INT64_MAX, &received.born_ms) ||
        !number_of(arguments[7], 0, INT64_MAX, &received.store_ms) ||
        !number_of(arguments[11], 0, INT64_MAX, &received.queue_offset) ||
        !number_of(arguments[12], 0, INT32_MAX, &received.attempt) ||
        received.born_host.size != HOST_SIZE || received.store_host.size != HOST_SIZE ||
        load_u32(received.born_host.bytes + 4) > PORT_MAX ||
        load_u32(received.store_host.bytes + 4) > PORT_MAX || received.digest.size > 32 || received.properties.size > PROPERTIES_SIZE_MAX ||
        received.body.size > FRAME_SIZE_MAX || received.topic.size > FRAME_SIZE_MAX ||
        received.handle.size > FRAME_SIZE_MAX || !is_utf8(received.properties))
        Py_RETURN_NONE;
    Outcome read = read_properties(&received);
    PyObject *encoded = read == FAILED       ? NULL
                        : read == NOT_FOR_ME ? Py_NewRef(Py_None)
                                             : write_received(&received);
    buffer_free(&received.users);
    return encoded;
}

/* ---- acknowledgements ------------------------------------------------------------------ */

typedef struct {
    Span names[2][2]; /* of group and topic: namespace and name */
    Span message_id, handle;
} Ack;

static int
read_name(Span message, Span name[2])
{
    ProtoField field;
    if (name[1].bytes != NULL)
        return 0;
    while (message.size) {
        if (!read_proto_field(&message, &field) ||
            (field.tag != SIZED(1) && field.tag != SIZED(2)) || !is_ascii(field.bytes))
            return 0;
        Span *part = &name[field.tag == SIZED(2)];
        if (part->bytes != NULL)
            return 0;
        *part = field.bytes;
    }
    return name[1].size != 0;
}

static int
read_entry(Span message, Ack *ack)
{
    ProtoField field;
    if (ack->handle.bytes != NULL)
        return 0;
    while (message.size) {
        if (!read_proto_field(&message, &field) ||
            (field.tag != SIZED(1) && field.tag != SIZED(2)) || !is_ascii(field.bytes))
            return 0;
        Span *part = field.tag == SIZED(1) ? &ack->message_id : &ack->handle;
        if (part->bytes != NULL)
            return 0;
        *part = field.bytes;
    }
    return ack->handle.size != 0;
}

static int
read_ack(Span request, Ack *ack)
{
    ProtoField field;
    while (request.size) {
        if (!read_proto_field(&request, &field))
            return 0;
        int read = 0;
        if (field.tag == SIZED(1) || field.tag == SIZED(2))
            read = read_name(field.bytes, ack->names[field.tag == SIZED(2)]);
        else if (field.tag == SIZED(3))
            read = read_entry(field.bytes, ack);
        if (!read)
            return 0;
    }
    return ack->names[0][1].bytes != NULL && ack->names[1][1].bytes != NULL &&
           ack->handle.bytes != NULL;
}

/* The numbers of a receipt, and its form and broker: fields that blanks separate. */
static PyObject *
read_receipt(Span handle)
{
    uint64_t numbers[RECEIPT_FIELDS] = {0};
    Span broker = {NULL, 0};
    for (int at = 0; at < RECEIPT_FIELDS; at++) {
        const uint8_t *blank = memchr(handle.bytes, ' ', handle.size);
        if ((blank == NULL) != (at == RECEIPT_FIELDS - 1))
            return NULL;
        Span field = {handle.bytes, blank ? (size_t)(blank - handle.bytes) : handle.size};
        uint64_t most = at == 3 || at == 6 ? INT32_MAX : at == 4 ? 9 : 999999999999999999;
        if (at == 5)
            broker = field;
        else if (!read_decimal(field, most, &numbers[at]))
            return NULL;
        size_t taken = field.size + (blank != NULL);
        handle.bytes += taken;
        handle.size -= taken;
    }
    return Py_BuildValue("(KKKKKNKKK)", numbers[0], numbers[1], numbers[2], numbers[3],
                         numbers[4], new_text(broker), numbers[6], numbers[7], numbers[8]);
}

/* grpc_ack(request) -> (group, topic, message id, handle, receipt), or None: not for me */
PyObject *
grpc_ack(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    Span request;
    Ack ack;
    memset(&ack, 0, sizeof ack);
    if (argument_count("grpc_ack", count, 1) < 0 || bytes_argument(arguments[0], &request) < 0)
        return NULL;
    if (!read_ack(request, &ack) || ack.names[0][0].size > TOPIC_SIZE_MAX_V1 ||
        ack.names[1][0].size > TOPIC_SIZE_MAX_V1 || ack.names[0][1].size > TOPIC_SIZE_MAX_V1 ||
        ack.names[1][1].size > TOPIC_SIZE_MAX_V1)
        Py_RETURN_NONE;
    PyObject *receipt = read_receipt(ack.handle);
    if (receipt == NULL) {
        if (PyErr_Occurred())
            return NULL;
        Py_RETURN_NONE;
    }
    return Py_BuildValue("(NNNNN)", new_text(ack.names[0][1]), new_text(ack.names[1][1]),
                         new_text(ack.message_id), new_text(ack.handle), receipt);
}

/* The answer to acknowledgements of one entry: grpc_acked(status, message id, handle) -> bytes */
PyObject *
grpc_acked(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    Span status, message_id, handle;
    if (argument_count("grpc_acked", count, 3) < 0 || bytes_argument(arguments[0], &status) < 0 ||
        ascii_argument(arguments[1], &message_id) < 0 || ascii_argument(arguments[2], &handle) < 0)
        return NULL;
    size_t status_size = sized_size(SIZED(1), status.size);
    size_t id_size = message_id.size ? sized_size(SIZED(1), message_id.size) : 0;
    size_t entry_size =
        id_size + sized_size(SIZED(2), handle.size) + sized_size(SIZED(3), status.size);
    PyObject *answer = new_bytes(status_size + sized_size(SIZED(2), entry_size));
    if (answer == NULL)
        return NULL;
    uint8_t *at = write_sized(bytes_of(answer), SIZED(1), status);
    at = write_varint(write_varint(at, SIZED(2)), entry_size);
    if (message_id.size)
        at = write_sized(at, SIZED(1), message_id);
    write_sized(write_sized(at, SIZED(2), handle), SIZED(3), status);
    return answer;
}
