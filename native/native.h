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

#define PROPERTIES_SIZE_MAX 0x7FFF
#define HOST_SIZE 8 /* an IPv4 address and a port */
#define UNIT_SIZE 20
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

typedef struct {
    uint32_t crc[8][256];
    Name names[NAMES_COUNT];
    PyObject *one;
    /* attributes of a queue */
    PyObject *magic, *record_overhead, *topic_field, *topic_hash, *tail, *next_offset,
        *committed_offset;
    /* attributes of a topic's configuration */
    PyObject *write_queue_nums;
} State;

static inline State *
state_of(PyObject *module)
{
    return (State *)PyModule_GetState(module);
}

/* Arguments: check the number of them, or read one; -1 with an exception set. */
int argument_count(const char *function, Py_ssize_t given, Py_ssize_t wanted);
int bytes_argument(PyObject *argument, Span *span);

static inline PyObject *
new_bytes(size_t size)
{
    return size > PY_SSIZE_T_MAX ? PyErr_NoMemory()
                                 : PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
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

/* frames.c */
PyObject *decode_frames(PyObject *module, PyObject *const *arguments, Py_ssize_t count);

/* properties.c */
PyObject *find_property(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
Span find_value(Span properties, const char *name, size_t name_size);

/* hashes.c */
void make_crc_table(State *state);
uint32_t crc32_of(const State *state, Span span);
uint32_t java_hash(uint32_t before, Span ascii);

#endif
