/* Frames from received bytes to commands.

   Pure Python: remoting/codec.py, which has the layout. */
#include "native.h"

PyObject *
new_text(Span span)
{
    if (span.size == 1 && span.bytes[0] < 0x80)
        return PyUnicode_FromOrdinal(span.bytes[0]); /* one object for each */
    if (!is_ascii(span))
        return PyUnicode_DecodeUTF8((const char *)span.bytes, (Py_ssize_t)span.size, "replace");
    PyObject *text = PyUnicode_New((Py_ssize_t)span.size, 127);
    if (text != NULL && span.size)
        memcpy(PyUnicode_1BYTE_DATA(text), span.bytes, span.size);
    return text;
}

/* The slot of a name. Headers have few names, so the table nearly always has them already; a name
   that shares its slot with another replaces it, so that no peer can fill the table. */
static Name *
name_slot(State *state, Span name)
{
    uint32_t hash = 2166136261u;
    for (size_t at = 0; at < name.size; at++)
        hash = (hash ^ name.bytes[at]) * 16777619u;
    Name *slot = &state->names[(hash ^ hash >> 16) & (NAMES_COUNT - 1)];
    if (slot->name != NULL && equals(name, slot->bytes, slot->size))
        return slot;
    PyObject *text = new_text(name);
    if (text == NULL)
        return NULL;
    PyUnicode_InternInPlace(&text);
    memcpy(slot->bytes, name.bytes, name.size);
    slot->size = name.size;
    Py_CLEAR(slot->value);
    Py_XSETREF(slot->name, text);
    return slot;
}

/* The value as text; the object of the last header if it is the same, as most of them are. */
static PyObject *
value_of(Name *slot, Span value)
{
    if (value.size > VALUE_SIZE_MAX || !is_ascii(value))
        return new_text(value);
    PyObject *last = slot->value;
    if (last != NULL &&
        equals(value, PyUnicode_1BYTE_DATA(last), (size_t)PyUnicode_GET_LENGTH(last)))
        return Py_NewRef(last);
    PyObject *text = new_text(value);
    if (text != NULL)
        Py_XSETREF(slot->value, Py_NewRef(text));
    return text;
}

/* A value as text: the object of the last header with the same, where the field has a short name
   and an ASCII value. */
PyObject *
field_text(State *state, Span name, Span value)
{
    Name *slot = name_slot(state, name);
    return slot ? value_of(slot, value) : NULL;
}

static int
add_field(State *state, PyObject *fields, Span name, Span value)
{
    PyObject *key, *text;
    if (name.size <= NAME_SIZE_MAX && is_ascii(name)) {
        Name *slot = name_slot(state, name);
        if (slot == NULL)
            return -1;
        key = Py_NewRef(slot->name);
        text = value_of(slot, value);
    } else {
        key = new_text(name);
        text = key ? new_text(value) : NULL;
    }
    int failed = text == NULL ? -1 : PyDict_SetItem(fields, key, text);
    Py_XDECREF(key);
    Py_XDECREF(text);
    return failed;
}

/* Cut the next field off a header's fields; 0: they are malformed. */
int
next_field(Span *fields, Span *name, Span *value)
{
    const uint8_t *at = fields->bytes;
    size_t left = fields->size;
    if (left < 2)
        return 0;
    name->size = load_u16(at);
    name->bytes = at + 2;
    left -= 2;
    if (left < name->size || left - name->size < 4)
        return 0;
    at = name->bytes + name->size;
    left -= name->size + 4;
    value->size = load_u32(at);
    value->bytes = at + 4;
    if (value->size > left)
        return 0;
    fields->bytes = value->bytes + value->size;
    fields->size = left - value->size;
    return 1;
}

/* The fields of a header as a dict; NULL without an exception: they are malformed or too many. */
static PyObject *
decode_fields(State *state, Span fields, Py_ssize_t fields_max)
{
    PyObject *decoded = PyDict_New();
    if (decoded == NULL)
        return NULL;
    Span name, value;
    for (Py_ssize_t seen = 0; fields.size; seen++)
        if (seen == fields_max || !next_field(&fields, &name, &value) ||
            add_field(state, decoded, name, value) < 0) {
            Py_DECREF(decoded);
            return NULL;
        }
    return decoded;
}

/* The numbers of a command without a remark. */
typedef struct {
    int32_t code, opaque, flag, version;
    long language, serialize_type;
} Numbers;

/* A command of its parts; steals `fields`. */
static PyObject *
make_command(PyObject *command_class, PyObject *fields, Numbers numbers, Span body)
{
    PyObject *parts[9] = {
        PyLong_FromLong(numbers.code),
        fields,
        PyBytes_FromStringAndSize((const char *)body.bytes, (Py_ssize_t)body.size),
        Py_NewRef(Py_None), /* remark */
        PyLong_FromLong(numbers.opaque),
        PyLong_FromLong(numbers.flag),
        PyLong_FromLong(numbers.language),
        PyLong_FromLong(numbers.version),
        PyLong_FromLong(numbers.serialize_type),
    };
    PyObject *command = NULL;
    int complete = 1;
    for (int part = 0; part < 9; part++)
        complete &= parts[part] != NULL;
    if (complete)
        command = PyObject_Vectorcall(command_class, parts, 9, NULL);
    for (int part = 0; part < 9; part++)
        Py_XDECREF(parts[part]);
    return command;
}

/* The limits of frames, and the objects that commands are made of; borrowed from the caller. */
typedef struct {
    PyObject *command_class, *no_fields, *languages;
    FrameLimits limits;
    Py_ssize_t fields_max;
    int has_runs; /* plain sends are left for a run */
} Reading;

/* The parts of the frame at the beginning of `data`; 0: it is not complete, or too large. */
int
next_frame(Span data, FrameLimits limits, Frame *frame)
{
    if (data.size < FRAME_START_SIZE)
        return 0;
    size_t length = load_u32(data.bytes), mark = load_u32(data.bytes + 4);
    size_t header_size = mark & 0xFFFFFF;
    if (length < 4 || length > limits.frame_size_max || length > data.size - 4 ||
        header_size > length - 4 || header_size > limits.header_size_max)
        return 0;
    frame->serialization = (uint32_t)(mark >> 24);
    frame->header = (Span){data.bytes + FRAME_START_SIZE, header_size};
    frame->body = (Span){frame->header.bytes + header_size, length - 4 - header_size};
    frame->size = 4 + length;
    return 1;
}

/* The fields of a binary header; 0: it is not one, or has a remark. */
int
binary_fields(const Frame *frame, Span *fields)
{
    Span header = frame->header;
    if (frame->serialization != ROCKETMQ || header.size < HEADER_SIZE)
        return 0;
    size_t remark_size = load_u32(header.bytes + 13), fields_size = load_u32(header.bytes + 17);
    if (remark_size != 0 || fields_size > header.size - HEADER_SIZE)
        return 0;
    *fields = (Span){header.bytes + HEADER_SIZE, fields_size};
    return 1;
}

/* The code of the language that a JSON header names; -1 with an exception: there is no table. */
static long
language_of(State *state, const Reading *reading, Span name)
{
    Name *slot = NULL;
    if (name.bytes == NULL)
        name = (Span){(const uint8_t *)"JAVA", 4}; /* as in RocketMQ */
    if (name.size <= NAME_SIZE_MAX && is_ascii(name) && (slot = name_slot(state, name)) == NULL)
        return -1;
    PyObject *code = slot ? PyDict_GetItemWithError(reading->languages, slot->name) : NULL;
    if (code == NULL && !PyErr_Occurred())
        code = PyDict_GetItemString(reading->languages, "OTHER");
    return code ? PyLong_AsLong(code) : -1;
}

/* NULL without an exception: it is not usual. */
static PyObject *
decode_json_frame(State *state, const Reading *reading, const Frame *frame, Unescaped *unescaped)
{
    JsonHeader header;
    if (!read_json_header(frame->header, any_code, &header, unescaped))
        return NULL;
    long language = language_of(state, reading, header.language);
    if (language == -1 && PyErr_Occurred())
        return NULL;
    PyObject *fields = header.has_fields ? PyDict_New() : Py_NewRef(reading->no_fields);
    for (int at = 0; fields != NULL && at < header.field_count; at++)
        if (add_field(state, fields, header.fields[at].name, header.fields[at].value) < 0)
            Py_CLEAR(fields);
    if (fields == NULL)
        return NULL;
    Numbers numbers = {header.code, header.opaque, header.flag, header.version, language, 0};
    return make_command(reading->command_class, fields, numbers, frame->body);
}

/* NULL without an exception: it is not usual. */
static PyObject *
decode_frame(State *state, const Reading *reading, const Frame *frame, Unescaped *unescaped)
{
    if (frame->serialization == JSON)
        return decode_json_frame(state, reading, frame, unescaped);
    Span block;
    /* Python knows most pulls by their bytes: remoting/pull_fields.py. */
    if (!binary_fields(frame, &block) || load_u16(frame->header.bytes) == PULL_MESSAGE)
        return NULL;
    PyObject *fields = block.size == 0 ? Py_NewRef(reading->no_fields)
                                       : decode_fields(state, block, reading->fields_max);
    if (fields == NULL)
        return NULL;
    const uint8_t *header = frame->header.bytes;
    Numbers numbers = {(int16_t)load_u16(header), (int32_t)load_u32(header + 5),
                       (int32_t)load_u32(header + 9), (int16_t)load_u16(header + 3),
                       header[2], 1};
    return make_command(reading->command_class, fields, numbers, frame->body);
}

/* Whether a frame may begin a run of sends, or of transactions. */
static int
begins_a_run(const Frame *frame, Unescaped *unescaped)
{
    SendHeader send;
    if (read_send(frame, unescaped, &send) != OTHER_SEND)
        return 1;
    unescaped->size = 0;
    return is_end(frame, unescaped);
}

/* Decode frames up to one that is not usual, or that begins a run. Returns the bytes of the decoded
   frames, or -1 with an exception set. */
static Py_ssize_t
decode_all(State *state, const Reading *reading, Span data, PyObject *commands,
           Unescaped *unescaped, int *begins_run)
{
    const uint8_t *start = data.bytes;
    Frame frame;
    while (next_frame(data, reading->limits, &frame)) {
        unescaped->size = 0; /* nothing points to the strings of the frame before */
        if (reading->has_runs && begins_a_run(&frame, unescaped)) {
            *begins_run = 1;
            break;
        }
        unescaped->size = 0;
        PyObject *command = decode_frame(state, reading, &frame, unescaped);
        if (command == NULL) {
            if (PyErr_Occurred())
                return -1;
            break;
        }
        int failed = PyList_Append(commands, command);
        Py_DECREF(command);
        if (failed)
            return -1;
        data.bytes += frame.size;
        data.size -= frame.size;
    }
    return data.bytes - start;
}

/* decode_frames(command_class, no_fields, languages, header_size_max, fields_max, data, position,
                 frame_size_max, has_runs, commands) -> position, or -1 - position at a run */
PyObject *
decode_frames(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    if (argument_count("decode_frames", count, 10) < 0)
        return NULL;
    Reading reading = {.command_class = arguments[0],
                       .no_fields = arguments[1],
                       .languages = arguments[2],
                       .limits = {.frame_size_max = PyLong_AsSize_t(arguments[7]),
                                  .header_size_max = PyLong_AsSize_t(arguments[3])},
                       .fields_max = PyLong_AsSsize_t(arguments[4]),
                       .has_runs = arguments[8] == Py_True};
    PyObject *received = arguments[5], *commands = arguments[9];
    Py_ssize_t position = PyLong_AsSsize_t(arguments[6]);
    if (PyErr_Occurred())
        return NULL;
    if (!PyList_CheckExact(commands) || !PyDict_CheckExact(reading.languages)) {
        PyErr_SetString(PyExc_TypeError,
                        "decode_frames() takes a dict of languages, and appends to a list");
        return NULL;
    }
    if (!PyBytes_CheckExact(received) || position < 0 || position > PyBytes_GET_SIZE(received))
        return PyLong_FromSsize_t(position);
    Span data = span_of(received);
    data.bytes += position;
    data.size -= (size_t)position;
    Unescaped unescaped = {NULL, 0, data.size};
    int begins_run = 0;
    Py_ssize_t size = decode_all(state_of(module), &reading, data, commands, &unescaped,
                                 &begins_run);
    PyMem_Free(unescaped.bytes);
    if (size < 0)
        return NULL;
    position += size;
    return PyLong_FromSsize_t(begins_run ? -1 - position : position);
}
