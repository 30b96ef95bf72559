import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Sends messages with keys, then looks them up as a user of the official client does.
 *
 * Arguments: the name server's HOST:PORT and a topic. Prints one line each, fields separated by
 * blanks, and nothing that differs between two runs but ids and times:
 *
 * sent NUMBER OFFSET_ID UNIQUE_ID                      message-NUMBER, in the order of sending
 * QUESTION NUMBER,NUMBER,...                           what it found, in the order of the answer
 * QUESTION none CODE                                   the client's exception with its code
 *
 * Each look-up is repeated until its answer has settled: an index is filled after the send.
 */
public final class Query {
    private static final long SETTLE_NS = TimeUnit.MILLISECONDS.toNanos(200);
    private static final long PAUSE_NS = TimeUnit.MILLISECONDS.toNanos(2100);
    private static final int TRIES_MAX = 50;
    private static final String[] KEYS = {"red", "red blue", "blue", "red green blue", "", "last"};
    /** The keys Aa and BB have one hash in Java, and so have these. */
    private static final String[] SAME_HASH = {"AaAa", "BBBB"};

    private final DefaultMQProducer producer = new DefaultMQProducer("query_producer");
    private final String topic;
    private final List<SendResult> sent = new ArrayList<>();
    private final List<MessageExt> seen = new ArrayList<>();

    private interface Question {
        List<MessageExt> ask() throws Exception;
    }

    private Query(String topic) {
        this.topic = topic;
    }

    public static void main(String[] args) throws Exception {
        Query query = new Query(args[1]);
        query.producer.setNamesrvAddr(args[0]);
        query.producer.setInstanceName("query");
        query.producer.start();
        query.run();
        System.out.println("end");
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private void run() throws Exception {
        for (String keys : KEYS) {
            send(keys);
        }
        for (String key : SAME_HASH) {
            send(key);
        }
        LockSupport.parkNanos(PAUSE_NS);
        send("red");
        int count = sent.size();
        query("all-keys-indexed", "red", 64, 0, Long.MAX_VALUE, 4);
        for (int number = 0; number < count; number++) {
            byId("by-offset-id-" + number, sent.get(number).getOffsetMsgId());
            byId("by-unique-id-" + number, sent.get(number).getMsgId());
        }
        for (String key : new String[] {"red", "green", "blue", "last", "AaAa", "BBBB"}) {
            query("by-key-" + key, key, 64, 0, Long.MAX_VALUE, 1);
        }
        query("at-most-two", "red", 2, 0, Long.MAX_VALUE, 2);
        query("at-most-one", "blue", 1, 0, Long.MAX_VALUE, 1);
        query("at-most-none", "red", 0, 0, Long.MAX_VALUE, 0);
        long early = seen.get(0).getStoreTimestamp();
        long late = seen.get(count - 1).getStoreTimestamp();
        query("early", "red", 64, early - 5000, late - 1001, 3);
        query("late", "red", 64, late - 1001, late + 5000, 1);
        query("after-all", "red", 64, late + 5000, Long.MAX_VALUE, 0);
        query("before-all", "red", 64, 0, early - 5000, 0);
        query("unknown-key", "yellow", 64, 0, Long.MAX_VALUE, 0);
        query("other-case", "RED", 64, 0, Long.MAX_VALUE, 0);
        query("unique-id-as-key", sent.get(0).getMsgId(), 64, 0, Long.MAX_VALUE, 0);
        byId("no-such-offset", offsetId(sent.get(0).getOffsetMsgId(), 1L << 40));
        byId("no-such-unique-id", sent.get(0).getMsgId().replaceAll("....$", "FFFF"));
    }

    private static String offsetId(String like, long physicalOffset) {
        return like.substring(0, like.length() - 16) + String.format("%016X", physicalOffset);
    }

    private void send(String keys) throws Exception {
        int number = sent.size();
        byte[] body = ("message-" + number).getBytes(StandardCharsets.UTF_8);
        Message message = new Message(topic, "TagA", keys, body);
        for (int tries = 1; sent.size() == number; tries++) {
            try {
                SendResult result = producer.send(message);
                if (result.getSendStatus() != SendStatus.SEND_OK) {
                    throw new IllegalStateException(result.toString());
                }
                sent.add(result);
            } catch (MQClientException e) {
                // The first send may come before the name server knows TBW102.
                if (tries == TRIES_MAX || number > 0) {
                    throw e;
                }
                LockSupport.parkNanos(SETTLE_NS);
            }
        }
        SendResult result = sent.get(number);
        System.out.println("sent " + number + " " + result.getOffsetMsgId() + " " + result.getMsgId());
    }

    private void byId(String name, String id) throws Exception {
        int number = name.matches(".*-\\d+") ? 1 : 0;
        answer(name, number, () -> {
            MessageExt message = producer.viewMessage(topic, id);
            return message == null ? List.of() : List.of(message);
        });
    }

    private void query(String name, String key, int max, long begin, long end, int least)
        throws Exception {
        answer(name, least, () -> {
            QueryResult result = producer.queryMessage(topic, key, max, begin, end);
            return result.getMessageList();
        });
    }

    /** Ask until at least this many messages are found; print the last answer. */
    private void answer(String name, int least, Question question) throws Exception {
        String found = "";
        for (int tries = 0; tries < TRIES_MAX; tries++) {
            try {
                List<MessageExt> messages = question.ask();
                found = numbers(messages);
                if (messages.size() >= least) {
                    break;
                }
            } catch (MQClientException e) {
                found = "none " + e.getResponseCode();
                if (least == 0) {
                    break;
                }
            }
            LockSupport.parkNanos(SETTLE_NS);
        }
        System.out.println(name + " " + found);
    }

    /** The numbers of these messages; each must be whole and have the ids it was sent with. */
    private String numbers(List<MessageExt> messages) {
        List<String> numbers = new ArrayList<>();
        for (MessageExt message : messages) {
            String body = new String(message.getBody(), StandardCharsets.UTF_8);
            int number = Integer.parseInt(body.replaceFirst("^message-", ""));
            SendResult result = sent.get(number);
            String offsetId = ((MessageClientExt) message).getOffsetMsgId();
            String keys = number < KEYS.length ? KEYS[number]
                : number < KEYS.length + SAME_HASH.length ? SAME_HASH[number - KEYS.length] : "red";
            boolean same = message.getMsgId().equals(result.getMsgId())
                && offsetId.equals(result.getOffsetMsgId()) && message.getTopic().equals(topic)
                && message.getQueueId() == result.getMessageQueue().getQueueId()
                && message.getQueueOffset() == result.getQueueOffset()
                && message.getTags().equals("TagA")
                && keys.equals(message.getKeys() == null ? "" : message.getKeys());
            numbers.add(same ? body.substring("message-".length()) : "differs:" + message);
            while (seen.size() <= number) {
                seen.add(message);
            }
            seen.set(number, message);
        }
        return String.join(",", numbers);
    }
}
