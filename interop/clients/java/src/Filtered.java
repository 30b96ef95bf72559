import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentSkipListMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Consumers that filter by SQL92 expressions, as users of the official client have them.
 *
 * Arguments: the name server's HOST:PORT. The topic is there, with four queues. Sends two rounds of numbered messages, the first before
 * the consumers are there and the second while they wait. In each queue a message ends each round
 * that all of them get, so that what came before it is all that comes. Prints:
 *
 * got ROUND NAME NUMBERS     what a consumer got in a round, in the order of their numbers
 * pulled NAME NUMBERS        what a consumer got that pulls with an expression in each request
 * refused NAME CODE          a consumer whose start failed, and the broker's response code
 * started NAME               one whose start did not fail though it should
 * end                        everything was printed; it runs until it is killed
 */
public final class Filtered {
    private static final String TOPIC = "Filtered";
    private static final int QUEUES = 4;
    private static final int ROUNDS = 2;
    private static final int TRIES_MAX = 100;
    private static final long PAUSE_NS = TimeUnit.MILLISECONDS.toNanos(200);
    private static final String[] SYMBOLS = {"A", "B", "it's", "a"};
    private static final String[] REGIONS = {"eu", "us", null};

    private static final String[][] EXPRESSIONS = {
        {"numbers", "price > 10 AND price <= 30"},
        {"halves", "weight >= 1.5"},
        {"texts", "symbol = 'A' OR symbol = 'it''s'"},
        {"other", "symbol <> 'A'"},
        {"between", "price BETWEEN 10 AND 20"},
        {"not-between", "price NOT BETWEEN 10 AND 20"},
        {"in", "region IN ('eu', 'xx')"},
        {"not-in", "region NOT IN ('eu')"},
        {"null", "region IS NULL"},
        {"not-null", "region IS NOT NULL AND NOT (price > 10)"},
        {"mixed", "(price > 25 OR symbol = 'A') AND NOT (region = 'eu')"},
        {"not-first", "NOT region = 'eu'"},
        {"tags", "TAGS = 'TagB' AND price < 15"},
        {"yes", "express = TRUE"},
        {"no-number", "symbol > 10"},
        {"nothing", "price > 1000000"},
    };

    private static final Map<String, TreeMap<Integer, Integer>> GOT = new ConcurrentSkipListMap<>();
    private static String address;

    private Filtered() {
    }

    public static void main(String[] args) throws Exception {
        address = args[0];
        DefaultMQProducer producer = new DefaultMQProducer("filtered_producer");
        producer.setNamesrvAddr(address);
        producer.start();
        List<MessageQueue> queues = queues(producer);
        round(producer, queues, 0);
        for (String[] each : EXPRESSIONS) {
            consumer(each[0], MessageSelector.bySql("(" + each[1] + ") OR last IS NOT NULL"));
        }
        consumer("by-tag", MessageSelector.byTag("TagA || End"));
        consumer("all", MessageSelector.byTag("*"));
        waitFor(0);
        round(producer, queues, 1);
        waitFor(1);
        refused("wrong", "price > > 10");
        refused("half", "price >");
        refused("empty-in", "region IN ()");
        pulled(queues);
        say("end");
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    private static List<MessageQueue> queues(DefaultMQProducer producer) throws Exception {
        for (int tries = 1; ; tries++) {
            try {
                List<MessageQueue> queues = producer.fetchPublishMessageQueues(TOPIC);
                if (queues.size() == QUEUES) {
                    return queues;
                }
            } catch (MQClientException e) {
                if (tries == TRIES_MAX) {
                    throw e;
                }
            }
            LockSupport.parkNanos(PAUSE_NS);
        }
    }

    /** Twenty messages in turn over the queues, and the one that ends each queue's round. */
    private static void round(DefaultMQProducer producer, List<MessageQueue> queues, int round)
        throws Exception {
        for (int number = 20 * round; number < 20 * (round + 1); number++) {
            Message message = new Message(TOPIC, number % 2 == 0 ? "TagA" : "TagB", bytes("" + number));
            message.putUserProperty("price", "" + number);
            message.putUserProperty("weight", "" + number / 8.0);
            message.putUserProperty("symbol", SYMBOLS[number % SYMBOLS.length]);
            message.putUserProperty("express", "" + (number % 5 == 0));
            if (REGIONS[number % REGIONS.length] != null) {
                message.putUserProperty("region", REGIONS[number % REGIONS.length]);
            }
            send(producer, message, queues.get(number % QUEUES));
        }
        for (MessageQueue queue : queues) {
            Message message = new Message(TOPIC, "End", bytes("" + -1));
            message.putUserProperty("last", "" + round);
            send(producer, message, queue);
        }
    }

    private static void send(DefaultMQProducer producer, Message message, MessageQueue queue)
        throws Exception {
        SendResult result = producer.send(message, queue);
        if (result.getSendStatus() != SendStatus.SEND_OK) {
            throw new IllegalStateException(result.toString());
        }
    }

    private static DefaultMQPushConsumer unstarted(String name) {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("filtered_" + name);
        consumer.setNamesrvAddr(address);
        consumer.setInstanceName(name);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(1);
        consumer.setConsumeThreadMax(1);
        return consumer;
    }

    /** Counts what comes by number; -1 is the end of a queue's round. */
    private static void consumer(String name, MessageSelector selector) throws Exception {
        TreeMap<Integer, Integer> got = new TreeMap<>();
        GOT.put(name, got);
        DefaultMQPushConsumer consumer = unstarted(name);
        consumer.subscribe(TOPIC, selector);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                String body = new String(message.getBody(), StandardCharsets.UTF_8);
                synchronized (got) {
                    got.merge(Integer.parseInt(body), 1, Integer::sum);
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
    }

    private static void waitFor(int round) {
        for (Map.Entry<String, TreeMap<Integer, Integer>> each : GOT.entrySet()) {
            TreeMap<Integer, Integer> got = each.getValue();
            while (true) {
                synchronized (got) {
                    if (got.getOrDefault(-1, 0) >= QUEUES * (round + 1)) {
                        say("got " + round + " " + each.getKey() + numbers(got, round));
                        break;
                    }
                }
                LockSupport.parkNanos(PAUSE_NS);
            }
        }
    }

    private static String numbers(TreeMap<Integer, Integer> got, int round) {
        StringBuilder text = new StringBuilder(" ");
        for (Map.Entry<Integer, Integer> each : got.tailMap(20 * round).entrySet()) {
            text.append(text.length() > 1 ? "," : "").append(each.getKey());
            text.append(each.getValue() == 1 ? "" : "x" + each.getValue());
        }
        return text.toString();
    }

    private static void refused(String name, String expression) throws Exception {
        DefaultMQPushConsumer consumer = unstarted(name);
        consumer.subscribe(TOPIC, MessageSelector.bySql(expression));
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) ->
            ConsumeConcurrentlyStatus.CONSUME_SUCCESS);
        try {
            consumer.start();
            say("started " + name);
        } catch (MQClientException e) {
            say("refused " + name + " " + e.getResponseCode());
        }
        consumer.shutdown();
    }

    @SuppressWarnings("deprecation")
    private static void pulled(List<MessageQueue> queues) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("filtered_pull");
        consumer.setNamesrvAddr(address);
        consumer.setInstanceName("pull");
        consumer.setRegisterTopics(Set.of(TOPIC));
        consumer.start();
        TreeMap<Integer, Integer> got = new TreeMap<>();
        for (MessageQueue queue : queues) {
            long offset = 0;
            for (int tries = 0; offset < consumer.maxOffset(queue); tries++) {
                try {
                    MessageSelector selector = MessageSelector.bySql("price > 15 AND region = 'us'");
                    PullResult result = consumer.pull(queue, selector, offset, 3);
                    offset = result.getNextBeginOffset();
                    if (result.getMsgFoundList() != null) {
                        for (MessageExt message : result.getMsgFoundList()) {
                            String body = new String(message.getBody(), StandardCharsets.UTF_8);
                            got.merge(Integer.parseInt(body), 1, Integer::sum);
                        }
                    }
                } catch (MQClientException e) {
                    // It does not know the broker's version before its first heartbeat.
                    if (tries == TRIES_MAX) {
                        throw e;
                    }
                    LockSupport.parkNanos(PAUSE_NS);
                }
            }
        }
        say("pulled pull" + numbers(got, 0));
        consumer.shutdown();
    }
}
