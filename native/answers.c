/* Answers to sends: the frames of `remoting/answer_template.py`, and the ids of a batch. */
#include "native.h"

#define OPAQUE_AT (FRAME_START_SIZE + 5)
#define BINARY_MARK (1u << 24)

/* The parts of an AnswerTemplate: (head, three names, end), all bytes. The head ends with the size
   of the fields. Returns -1 with TypeError set. */
int
answer_parts(PyObject *tuple, AnswerParts *parts)
{
    if (!PyTuple_CheckExact(tuple) || PyTuple_GET_SIZE(tuple) != 5) {
        PyErr_SetString(PyExc_TypeError, "an answer has five parts");
        return -1;
    }
    Span *spans[5] = {&parts->head, &parts->names[0], &parts->names[1], &parts->names[2],
                      &parts->end};
    for (Py_ssize_t at = 0; at < 5; at++)
        if (bytes_argument(PyTuple_GET_ITEM(tuple, at), spans[at]) < 0)
            return -1;
    if (parts->head.size < FRAME_START_SIZE + HEADER_SIZE) {
        PyErr_SetString(PyExc_ValueError, "the head of an answer is too short");
        return -1;
    }
    return 0;
}

/* The pieces of an answer with a JSON header; -1 with TypeError set. */
int
json_answer_parts(PyObject *tuple, JsonAnswerParts *parts)
{
    if (!PyTuple_CheckExact(tuple) || PyTuple_GET_SIZE(tuple) != 5) {
        PyErr_SetString(PyExc_TypeError, "a JSON answer has five pieces");
        return -1;
    }
    for (Py_ssize_t at = 0; at < 5; at++)
        if (bytes_argument(PyTuple_GET_ITEM(tuple, at), &parts->pieces[at]) < 0)
            return -1;
    return 0;
}

/* Append the frame of an answer with a JSON header, without its body; -1 with MemoryError set. */
int
add_json_answer(Buffer *answers, const JsonAnswerParts *parts, uint32_t opaque,
                const Span values[3], size_t body_size)
{
    uint8_t text[11];
    size_t text_size = (int32_t)opaque < 0;
    text[0] = '-';
    text_size += write_decimal(text + text_size, (int32_t)opaque < 0 ? 0u - opaque : opaque);
    Span pieces[9] = {parts->pieces[0], values[0], parts->pieces[1], values[1], parts->pieces[2],
                      values[2], parts->pieces[3], {text, text_size}, parts->pieces[4]};
    size_t size = 0;
    for (int piece = 0; piece < 9; piece++)
        size += pieces[piece].size;
    if (buffer_reserve(answers, FRAME_START_SIZE + size) < 0)
        return -1;
    uint8_t *at = store_u32(answers->bytes + answers->size, (uint32_t)(4 + size + body_size));
    at = store_u32(at, (uint32_t)size);
    for (int piece = 0; piece < 9; piece++)
        at = store_bytes(at, pieces[piece].bytes, pieces[piece].size);
    answers->size += FRAME_START_SIZE + size;
    return 0;
}

static size_t
fields_size(const AnswerParts *parts, const Span values[3])
{
    size_t size = parts->end.size;
    for (int field = 0; field < 3; field++)
        size += parts->names[field].size + 4 + values[field].size;
    return size;
}

/* Bytes of the frame without its body. */
size_t
answer_size(const AnswerParts *parts, const Span values[3])
{
    return parts->head.size + fields_size(parts, values);
}

uint8_t *
write_answer(uint8_t *at, const AnswerParts *parts, uint32_t opaque, const Span values[3],
             size_t body_size)
{
    size_t size = fields_size(parts, values);
    size_t header_size = parts->head.size - FRAME_START_SIZE + size;
    uint8_t *frame = at;
    at = store_bytes(at, parts->head.bytes, parts->head.size);
    store_u32(frame, (uint32_t)(4 + header_size + body_size));
    store_u32(frame + 4, BINARY_MARK | (uint32_t)header_size);
    store_u32(frame + OPAQUE_AT, opaque);
    store_u32(at - 4, (uint32_t)size);
    for (int field = 0; field < 3; field++) {
        at = store_bytes(at, parts->names[field].bytes, parts->names[field].size);
        at = store_u32(at, (uint32_t)values[field].size);
        at = store_bytes(at, values[field].bytes, values[field].size);
    }
    return store_bytes(at, parts->end.bytes, parts->end.size);
}

/* fill_answer(parts, opaque, first, second, third, body_size) -> the frame without its body */
PyObject *
fill_answer(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    AnswerParts parts;
    Span values[3];
    int64_t opaque, body_size;
    if (argument_count("fill_answer", count, 6) < 0 || answer_parts(arguments[0], &parts) < 0)
        return NULL;
    for (int field = 0; field < 3; field++)
        if (bytes_argument(arguments[2 + field], &values[field]) < 0)
            return NULL;
    if (!number_of(arguments[1], INT32_MIN, INT32_MAX, &opaque) ||
        !number_of(arguments[5], 0, INT32_MAX, &body_size) ||
        answer_size(&parts, values) + (size_t)body_size > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "a number does not fit into an answer");
        return NULL;
    }
    PyObject *frame = new_bytes(answer_size(&parts, values));
    if (frame != NULL)
        write_answer(bytes_of(frame), &parts, (uint32_t)opaque, values, (size_t)body_size);
    return frame;
}

/* 16 digits, upper case. */
size_t
write_hex(uint8_t *at, uint64_t value)
{
    static const char digits[] = "0123456789ABCDEF";
    for (int digit = 15; digit >= 0; digit--, value >>= 4)
        at[digit] = (uint8_t)digits[value & 15];
    return 16;
}

/* batch_ids(prefix, offsets) -> "prefix0000000000000000,prefix..." */
PyObject *
batch_ids(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    Span prefix;
    if (argument_count("batch_ids", count, 2) < 0 || bytes_argument(arguments[0], &prefix) < 0)
        return NULL;
    PyObject *offsets = arguments[1];
    if (!PyList_CheckExact(offsets) || !is_ascii(prefix)) {
        PyErr_SetString(PyExc_TypeError, "batch_ids() takes ASCII and a list");
        return NULL;
    }
    size_t number = (size_t)PyList_GET_SIZE(offsets), each = prefix.size + 17;
    if (number == 0)
        return PyUnicode_FromString("");
    if (number > (size_t)PY_SSIZE_T_MAX / each)
        return PyErr_NoMemory();
    PyObject *ids = PyUnicode_New((Py_ssize_t)(number * each - 1), 127);
    if (ids == NULL)
        return NULL;
    uint8_t *at = PyUnicode_1BYTE_DATA(ids);
    for (size_t done = 0; done < number; done++) {
        int64_t offset;
        if (!number_of(PyList_GET_ITEM(offsets, (Py_ssize_t)done), 0, INT64_MAX, &offset)) {
            Py_DECREF(ids);
            PyErr_SetString(PyExc_ValueError, "batch_ids() got an offset out of range");
            return NULL;
        }
        if (done)
            *at++ = ',';
        at = store_bytes(at, prefix.bytes, prefix.size);
        at += write_hex(at, (uint64_t)offset);
    }
    return ids;
}
