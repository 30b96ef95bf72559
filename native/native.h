/* The extension's parts: what one file provides for another. `extension.py` describes the functions
   that Python calls.

   Rules of all of it: nothing is global, every length is compared before it is used, no allocation
   is taken for granted, and no Python code runs while a borrowed reference is in use. A function
   that meets anything unusual returns "not for me" and has changed nothing: the pure Python code
   then does it, and finds out what is wrong. */
#ifndef TROCKET_NATIVE_H
#define TROCKET_NATIVE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "bytes.h"
#include "limits.h"

#define HOST_SIZE 8 /* an IPv4 address and a port */
#define CRC_SLICES 16 /* bytes of a step of the checksum */
#define NAMES_COUNT 256 /* slots of the table of field names, a power of two */
#define NAME_SIZE_MAX 40
#define VALUE_SIZE_MAX 64

/* A field's name, and the value that was last seen with it. */
typedef struct {
    uint8_t bytes[NAME_SIZE_MAX];
    size_t size;
    PyObject *name;  /* NULL: the slot is free */
    PyObject *value; /* NULL: none yet */
} Name;

/* Attributes of Python's objects that are read or set here; `extension.py` declares the objects. */
#define ATTRIBUTES(X)                                                                              \
    /* configurations of a topic and a group */                                                    \
    X(write_queue_nums) X(topic_sys_flag) X(group_sys_flag)                                        \
    /* a held pull, its parts, and the queue that holds it */                                      \
    X(pull) X(queue) X(channel) X(closed) X(opaque) X(serialize_type) X(terms) X(queue_offset)     \
    X(selector) X(group) X(topic) X(offset_key) X(count_max) X(size_max) X(tagged) X(others)       \
    X(of_channels)

#define DECLARE_NAME(name) PyObject *name;

typedef struct {
    uint32_t crc[CRC_SLICES][256];
    Name names[NAMES_COUNT];
    PyObject *queue_type;
    PyObject *schedule_topic; /* the name of the topic of delayed messages */
    ATTRIBUTES(DECLARE_NAME)  /* their names */
} State;

static inline State *
state_of(PyObject *module)
{
    return (State *)PyModule_GetState(module);
}

/* What became of a step; a caller goes on only after USUAL. */
typedef enum {
    FAILED = -1,    /* an exception is set */
    NOT_FOR_ME = 0, /* nothing is wrong, but pure Python must do it */
    USUAL = 1,
} Outcome;

/* Take the exception that is set, so that Python may run; NULL: none is. `raise_again` sets it
   again, and takes the reference. */
PyObject *take_raised(void);
void raise_again(PyObject *raised);

/* Arguments: check the number of them, or read one; -1 with an exception set. */
int argument_count(const char *function, Py_ssize_t given, Py_ssize_t wanted);
int bytes_argument(PyObject *argument, Span *span);

static inline PyObject *
new_bytes(size_t size)
{
    return size > PY_SSIZE_T_MAX ? PyErr_NoMemory()
                                 : PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
}

static inline PyObject *
bytes_from(const uint8_t *bytes, size_t size)
{
    return PyBytes_FromStringAndSize((const char *)bytes, (Py_ssize_t)size);
}

static inline uint8_t *
bytes_of(PyObject *bytes)
{
    return (uint8_t *)PyBytes_AS_STRING(bytes);
}

static inline Span
span_of(PyObject *bytes)
{
    return (Span){bytes_of(bytes), (size_t)PyBytes_GET_SIZE(bytes)};
}

/* A whole number within limits; 0 without an exception: it is none. */
int number_of(PyObject *argument, int64_t low, int64_t high, int64_t *number);

/* The same of an object's attribute. */
Outcome number_attribute(PyObject *object, PyObject *name, int64_t low, int64_t high,
                         int64_t *number);

/* hashes.c */
void make_crc_table(State *state);
uint32_t crc32_of(const State *state, Span span);
uint32_t java_hash(uint32_t before, Span ascii);

/* utf8.c */
int is_utf8(Span text);

/* frames.c */
#define JSON 0 /* serializations of a header */
#define ROCKETMQ 1

typedef struct {
    uint32_t serialization;
    Span header, body;
    size_t size; /* of the frame */
} Frame;

typedef struct {
    size_t frame_size_max, header_size_max;
} FrameLimits;

int next_frame(Span data, FrameLimits limits, Frame *frame);
int binary_fields(const Frame *frame, Span *fields);
PyObject *field_text(State *state, Span name, Span value);
PyObject *new_text(Span span);
int next_field(Span *fields, Span *name, Span *value);

/* json_header.c */
#define FIELDS_MAX 64 /* of a send, in either serialization */

typedef struct {
    Span name, value;
} Field;

typedef struct {
    int32_t code, flag, opaque, version;
    Span language; /* `bytes` is NULL where there is none */
    int has_fields, field_count;
    Field fields[FIELDS_MAX];
} JsonHeader;

/* Strings that JSON has escaped. The memory never moves, because spans point into it: there is
   enough for all received bytes, which the strings are shorter than. */
typedef struct {
    uint8_t *bytes; /* NULL: not needed yet; freed by the caller */
    size_t size, size_max;
} Unescaped;

int read_json_header(Span text, int (*is_wanted)(int32_t code), JsonHeader *header,
                     Unescaped *unescaped);
int any_code(int32_t code);

/* properties.c */
typedef struct {
    Span tags, unique_key, keys; /* `bytes` is NULL where there is none */
} Keys;

Span find_value(Span properties, const char *name, size_t name_size);
Keys find_keys(Span properties);
int are_ascii(const Keys *keys);
int needs_pure_record(Span properties);

/* send_header.c: a plain send, a half message or a batch. The spans are of the received bytes, or
   unescaped. */
typedef enum {
    OTHER_SEND = 0,
    PLAIN_SEND = 1,
    HALF_MESSAGE = 2,
    BATCH = 3,
} SendKind;

typedef struct {
    Span topic, properties, body;
    Span delay; /* the property of its delay level, up to its end; `bytes` is NULL without one */
    Keys keys;
    uint32_t opaque, queue_id, sys_flag, delay_level;
    uint64_t born_ms;
    int is_json, is_oneway;
} SendHeader;

SendKind read_send(const Frame *frame, Unescaped *unescaped, SendHeader *send);

/* transactions.c */
int is_end(const Frame *frame, Unescaped *unescaped);

/* records.c */
/* A record of a message in a plain queue, with IPv4 hosts. `added` are the broker's properties. */
typedef struct {
    uint32_t queue_id, flag, sys_flag, reconsume_times;
    uint64_t queue_offset, physical_offset, born_ms, store_ms, prepared_offset;
    const uint8_t *born_host, *store_host;
    Span body, topic_field, properties, added;
} Record;

size_t separator_size(const Record *record);
size_t record_size(const Record *record);
uint8_t *write_record(const State *state, uint8_t *at, const Record *record);
uint8_t *write_unit(uint8_t *at, uint64_t physical_offset, size_t size, int64_t tags_code);

/* queue.c */
typedef struct {
    PyObject_HEAD
    PyObject *topic_field, *topic_hash, *magic; /* bytes and numbers; NULL: not set up */
    PyObject *tail; /* a bytearray, unless Python has set something else */
    int unit_size;
    long long min_offset, tail_offset, max_offset, committed_offset, next_offset, cold_end;
} Queue;

int add_queue_type(PyObject *module, State *state);
Outcome find_state(const State *state, PyObject *queues, PyObject *key, Queue **queue);
uint8_t *grow_tail(Queue *queue, Py_ssize_t size, int64_t count);
int remove_unit(Queue *queue);
int export_units(const Queue *queue, Py_buffer *units);

/* runs.c: messages of a burst */
#define RUN_MAX 4096 /* what a run takes to remember is bounded, and so is the turn */

typedef struct {
    Record record; /* its queue offset is set with its unit */
    Keys keys;
    int64_t tags_code;
    uint32_t topic_hash;
    Queue *queue; /* strong */
    int has_unit;
    uint8_t *changed; /* memory of its properties, if they were changed; NULL: not used */
    /* of a send: what its answer repeats */
    uint32_t opaque, queue_id;
    int is_json, is_oneway;
    Py_ssize_t message_count; /* of a send's first message; 0: one of the others of a batch */
} Put;

typedef struct {
    State *state;
    PyObject *queues; /* borrowed */
    int64_t store_ms, physical_offset, file_end;
    size_t records_size;
    Put *puts;
    Py_ssize_t count, capacity;
} Run;

Put *next_put(Run *run);
Outcome find_queue(const Run *run, PyObject *topic, uint32_t queue_id, Put *put);
Outcome place_put(Run *run, Put *put);
void release_put(Put *put);
void release_run(Run *run);
int append_unit(Queue *queue, Record *record, int64_t tags_code, PyObject *touched);
void undo_touched(PyObject *touched, Py_ssize_t touched_count);
int append_units(Run *run, PyObject *touched);
void undo_units(Run *run, PyObject *touched, Py_ssize_t touched_count);
PyObject *write_records(const Run *run);
int add_entries_of(Buffer *entries, const Put *put);

/* batches.c */
int next_message(Span *body, Record *record);
int needs_no_batch_rule(Span text);

/* messages.c: a plain record: V1, IPv4 hosts, body not compressed, topic in ASCII */
typedef struct {
    const uint8_t *head; /* RECORD_HEAD_SIZE bytes */
    Span body, topic, properties;
    size_t size;
} PlainRecord;

int next_record(Span data, PlainRecord *record);

/* index.c: entries that are not in a file yet, each ENTRY_SIZE bytes as this machine has numbers */
Outcome add_entries(Buffer *entries, uint32_t topic_hash, const Keys *keys, int64_t physical_offset,
                int64_t store_ms);

/* wakes.c */
Outcome only_others(const State *state, PyObject *queue, PyObject **others);

/* answers.c */
typedef struct {
    Span head, names[3], end;
} AnswerParts;

typedef struct {
    Span pieces[5]; /* before each value, before the opaque, and after it */
} JsonAnswerParts;

int answer_parts(PyObject *tuple, AnswerParts *parts);
int json_answer_parts(PyObject *tuple, JsonAnswerParts *parts);
size_t answer_size(const AnswerParts *parts, const Span values[3]);
int add_json_answer(Buffer *answers, const JsonAnswerParts *parts, uint32_t opaque,
                    const Span values[3], size_t body_size);
uint8_t *write_answer(uint8_t *at, const AnswerParts *parts, uint32_t opaque,
                      const Span values[3], size_t body_size);
size_t write_hex(uint8_t *at, uint64_t value);

/* The functions of the module; see extension.py. */
#define DECLARE(name) \
    PyObject *name(PyObject *module, PyObject *const *arguments, Py_ssize_t count)

DECLARE(decode_frames);
DECLARE(find_property);
DECLARE(index_entries);
DECLARE(index_put);
DECLARE(is_plain_batch);
DECLARE(pack_batch);
DECLARE(pack_sends);
DECLARE(pack_deliveries);
DECLARE(fill_answer);
DECLARE(batch_ids);
DECLARE(decode_records);
DECLARE(send_frame);
DECLARE(grpc_send);
DECLARE(grpc_sent);
DECLARE(grpc_message);
DECLARE(grpc_ack);
DECLARE(grpc_acked);
DECLARE(join_records);
DECLARE(take_pulls);
DECLARE(take_transactions);
DECLARE(pack_put);
DECLARE(wake_pulls);

#endif
