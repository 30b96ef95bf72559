/* Headers of sends: from a frame in either serialization to the parts of a plain send, of a half
   message, or of a batch.

   A plain send is a SEND_MESSAGE or SEND_MESSAGE_V2, answered or oneway, with a unique key, plain
   or compressed, perhaps with a delay level, and without any other property that needs a rule, and
   does not say that it is a batch. Its topic and queue are still to be looked up; see sends.c.

   A half message is an answered one whose sysFlag says so, with a unique key and any other
   properties: Python has their rules; see transactions.c.

   A batch is a send of any code whose header says that it is one. Its properties are those of its
   messages, which are not read here; see sends.c.

   Pure Python: codec.py and `SendMessageProcessor._send`. */
#include "native.h"

#define BORN_MAX 9999999999999                           /* BORN_DIGITS of them */
#define COMPRESSION (COMPRESSED | COMPRESSION_TYPE_MASK) /* of sysFlag: the body's compression */

/* The fields of a send's header; `bytes` is NULL where there is none. */
typedef struct {
    int32_t code;
    Span topic, queue_id, sys_flag, born, flag, properties, reconsume, batch;
    Span group, default_topic, queue_nums, max_reconsume; /* only a batch's are looked at */
} Fields;

/* Where a field with this name belongs; NULL: it does not matter. */
static Span *
field_place(Fields *fields, Span name, int letters)
{
    if (letters) {
        if (name.size != 1)
            return NULL;
        switch (name.bytes[0]) {
        case 'a': return &fields->group;
        case 'b': return &fields->topic;
        case 'c': return &fields->default_topic;
        case 'd': return &fields->queue_nums;
        case 'e': return &fields->queue_id;
        case 'f': return &fields->sys_flag;
        case 'g': return &fields->born;
        case 'h': return &fields->flag;
        case 'i': return &fields->properties;
        case 'j': return &fields->reconsume;
        case 'l': return &fields->max_reconsume;
        case 'm': return &fields->batch;
        default: return NULL;
        }
    }
    if (equals(name, TEXT("topic")))
        return &fields->topic;
    if (equals(name, TEXT("queueId")))
        return &fields->queue_id;
    if (equals(name, TEXT("sysFlag")))
        return &fields->sys_flag;
    if (equals(name, TEXT("bornTimestamp")))
        return &fields->born;
    if (equals(name, TEXT("flag")))
        return &fields->flag;
    if (equals(name, TEXT("properties")))
        return &fields->properties;
    if (equals(name, TEXT("reconsumeTimes")))
        return &fields->reconsume;
    if (equals(name, TEXT("batch")))
        return &fields->batch;
    if (equals(name, TEXT("producerGroup")))
        return &fields->group;
    if (equals(name, TEXT("defaultTopic")))
        return &fields->default_topic;
    if (equals(name, TEXT("defaultTopicQueueNums")))
        return &fields->queue_nums;
    if (equals(name, TEXT("maxReconsumeTimes")))
        return &fields->max_reconsume;
    return NULL;
}

/* The fields of a binary header; 0: they are malformed or too many. */
static int
read_binary_fields(Span block, int letters, Fields *fields)
{
    Span name, value;
    for (int seen = 0; block.size; seen++) {
        if (seen == FIELDS_MAX || !next_field(&block, &name, &value))
            return 0;
        Span *place = field_place(fields, name, letters);
        if (place != NULL)
            *place = value;
    }
    return 1;
}

static int
is_send(int32_t code)
{
    return code == SEND_MESSAGE || code == SEND_MESSAGE_V2 || code == SEND_BATCH_MESSAGE;
}

static int
read_binary(const Frame *frame, Fields *fields, int32_t *flag, SendHeader *send)
{
    Span block;
    if (!binary_fields(frame, &block))
        return 0;
    int32_t code = fields->code = load_u16(frame->header.bytes);
    send->opaque = load_u32(frame->header.bytes + 5);
    *flag = (int32_t)load_u32(frame->header.bytes + 9);
    return is_send(code) && read_binary_fields(block, code != SEND_MESSAGE, fields);
}

static int
read_json(const Frame *frame, Unescaped *unescaped, Fields *fields, int32_t *flag,
          SendHeader *send)
{
    JsonHeader header;
    if (!read_json_header(frame->header, is_send, &header, unescaped))
        return 0;
    send->opaque = (uint32_t)header.opaque;
    *flag = header.flag;
    fields->code = header.code;
    for (int at = 0; at < header.field_count; at++) {
        const Field *field = &header.fields[at];
        Span *place = field_place(fields, field->name, header.code != SEND_MESSAGE);
        if (place != NULL)
            *place = field->value;
    }
    return 1;
}

static int
read_small(Span text, uint64_t max, uint32_t *number)
{
    uint64_t value;
    if (!read_decimal(text, max, &value))
        return 0;
    *number = (uint32_t)value;
    return 1;
}

/* The numbers as in nearly all sends. */
static int
read_usual_numbers(const Fields *fields, SendHeader *send)
{
    return read_small(fields->sys_flag, COMPRESSION | PREPARED, &send->sys_flag) &&
           equals(fields->flag, TEXT("0")) &&
           (fields->reconsume.size == 0 || equals(fields->reconsume, TEXT("0"))) &&
           fields->born.size == BORN_DIGITS &&
           read_decimal(fields->born, BORN_MAX, &send->born_ms) &&
           read_small(fields->queue_id, QUEUE_ID_MAX, &send->queue_id);
}

/* The property of a delay level as clients write it, 1 to 99; 0: it is given in another way. */
static int
find_delay(Span properties, SendHeader *send)
{
    const uint8_t *at = properties.bytes, *end = at + properties.size;
    while (at < end) {
        const uint8_t *separator = memchr(at, 2, (size_t)(end - at));
        size_t size = (size_t)((separator ? separator : end) - at);
        if (size >= 5 && memcmp(at, "DELAY", 5) == 0) {
            if (send->delay.bytes != NULL || size < 7 || at[5] != 1 || at[6] == '0' ||
                !read_small((Span){at + 6, size - 6}, 99, &send->delay_level))
                return 0;
            send->delay = (Span){at, size};
        }
        if (separator == NULL)
            break;
        at = separator + 1;
    }
    return send->delay.bytes != NULL;
}

/* Whether properties that contain UNIQ_KEY and the byte after it need no rule but that of a delay
   level; compare `admission.is_special`. All names with a rule but DELAY have an underscore. */
static int
needs_no_rule(Span properties, SendHeader *send)
{
    size_t underscores = 0;
    for (size_t at = 0; at < properties.size; at++)
        underscores += properties.bytes[at] == '_';
    if (find_bytes(properties, TEXT("DELAY")))
        return underscores == 1 && find_delay(properties, send);
    return underscores == 1 ||
           !(find_bytes(properties, TEXT("TRAN")) || find_bytes(properties, TEXT("R_")) ||
             find_bytes(properties, TEXT("L_")) || find_bytes(properties, TEXT("Y_")) ||
             find_bytes(properties, TEXT("P_")));
}

/* Whether the properties need no other rule, and TAGS and the keys are ASCII. */
static int
has_usual_properties(Span properties, SendHeader *send)
{
    if (properties.size == 0 || !find_bytes(properties, TEXT("UNIQ_KEY\1")) ||
        !needs_no_rule(properties, send) || needs_pure_record(properties) ||
        find_bytes(properties, TEXT("MSG_REGION\1")) ||
        find_bytes(properties, TEXT("WAIT\1false")) || !is_utf8(properties))
        return 0;
    send->keys = find_keys(properties);
    return are_ascii(&send->keys);
}

/* Whether the properties have a unique key, whose rules are Python's. */
static int
has_unique_key(Span properties, SendHeader *send)
{
    const uint8_t *found = find_bytes(properties, TEXT("UNIQ_KEY\1"));
    if (found == NULL || !is_utf8(properties))
        return 0;
    const uint8_t *value = found + 9, *end = properties.bytes + properties.size;
    const uint8_t *separator = memchr(value, 2, (size_t)(end - value));
    send->keys.unique_key = (Span){value, (size_t)((separator ? separator : end) - value)};
    return 1;
}

/* Whether the whole header of a batch is usual: Python reads all of its fields, of a plain send only
   those above. Its properties only say whether the answer waits. */
static int
is_usual_batch(const Fields *fields, const SendHeader *send)
{
    uint32_t queue_nums;
    return send->sys_flag == 0 && fields->group.bytes != NULL &&
           fields->default_topic.bytes != NULL &&
           read_small(fields->queue_nums, QUEUE_ID_MAX, &queue_nums) &&
           (fields->reconsume.bytes == NULL || fields->reconsume.size != 0) &&
           fields->max_reconsume.bytes == NULL && is_utf8(fields->properties) &&
           !find_bytes(fields->properties, TEXT("WAIT\1false"));
}

/* The kind of a send by what its header says, and its properties. */
static SendKind
kind_of(const Fields *fields, SendHeader *send)
{
    Span properties = fields->properties;
    if (equals(fields->batch, TEXT("true")))
        return is_usual_batch(fields, send) ? BATCH : OTHER_SEND;
    if (fields->code == SEND_BATCH_MESSAGE ||
        (fields->batch.size && !equals(fields->batch, TEXT("false"))))
        return OTHER_SEND;
    if ((send->sys_flag & ~COMPRESSION) == 0)
        return has_usual_properties(properties, send) ? PLAIN_SEND : OTHER_SEND;
    if ((send->sys_flag & ~(uint32_t)COMPRESSED) == PREPARED && !send->is_oneway &&
        fields->topic.size != 0 && has_unique_key(properties, send))
        return HALF_MESSAGE;
    return OTHER_SEND;
}

/* Read the header of a send that is not OTHER_SEND, which any other frame is.
   `unescaped` has room for the frame, and is in use as long as the send. */
SendKind
read_send(const Frame *frame, Unescaped *unescaped, SendHeader *send)
{
    Fields fields;
    int32_t flag;
    memset(&fields, 0, sizeof fields);
    memset(send, 0, sizeof *send);
    send->is_json = frame->serialization == JSON;
    if (!(send->is_json ? read_json(frame, unescaped, &fields, &flag, send)
                        : read_binary(frame, &fields, &flag, send)) ||
        (flag & ~ONEWAY_FLAG) != 0 || !read_usual_numbers(&fields, send))
        return OTHER_SEND;
    send->is_oneway = flag == ONEWAY_FLAG;
    SendKind kind = kind_of(&fields, send);
    send->topic = fields.topic;
    send->properties = fields.properties;
    send->body = frame->body;
    return kind;
}
