/* Limits, sizes and codes that Python has as well: tests/native/test_names.py compares them, each
   with the constant that it names there. */
#ifndef TROCKET_LIMITS_H
#define TROCKET_LIMITS_H

/* of a send */
#define QUEUE_ID_MAX 1023
#define BORN_DIGITS 13
#define SEND_MESSAGE 10
#define SEND_MESSAGE_V2 310
#define SEND_BATCH_MESSAGE 320
#define PULL_MESSAGE 11
#define END_TRANSACTION 37
#define ONEWAY_FLAG 2
/* of a frame */
#define FRAME_SIZE_MAX (16 * 1024 * 1024)
#define FRAME_START_SIZE 8
#define HEADER_SIZE 21 /* code, language, version, opaque, flag, size of remark, size of fields */
/* of a record, a unit of a queue, and an entry of the index that is not in a file yet */
#define MAGIC_V1 0xDAA320A7u
#define RECORD_HEAD_SIZE 88
#define TOPIC_SIZE_MAX_V1 127
#define PROPERTIES_SIZE_MAX 0x7FFF
#define COMPRESSED 1
#define PREPARED 4
#define COMPRESSION_TYPE_MASK 0x700u
#define HOSTS_V6 0x30
#define UNIT_SIZE 20
#define ENTRY_SIZE 20

#define LIMITS(X)                                                                                  \
    X(QUEUE_ID_MAX) X(BORN_DIGITS) X(SEND_MESSAGE) X(SEND_MESSAGE_V2) X(SEND_BATCH_MESSAGE)        \
    X(PULL_MESSAGE) X(END_TRANSACTION) X(PREPARED) X(ONEWAY_FLAG) X(FRAME_SIZE_MAX) X(FRAME_START_SIZE) X(HEADER_SIZE) X(MAGIC_V1)                \
    X(RECORD_HEAD_SIZE) X(TOPIC_SIZE_MAX_V1) X(PROPERTIES_SIZE_MAX) X(COMPRESSED)                  \
    X(COMPRESSION_TYPE_MASK) X(HOSTS_V6) X(UNIT_SIZE) X(ENTRY_SIZE)

#endif
