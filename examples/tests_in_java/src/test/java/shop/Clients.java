package shop;

import java.nio.charset.StandardCharsets;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import trocket.junit.Broker;

/** Clients for tests: they notice topics and queues at once, not after up to 30 s. */
final class Clients {
    /** A busy machine needs some; a test waits for it only before it fails. */
    static final long PATIENCE_S = 60;
    static final String KEY = "order-1";
    private static final int NOTICE_MS = 20;

    static {
        // Read by the client when its classes are loaded: how soon a consumer takes its queues.
        System.setProperty("rocketmq.client.rebalance.minInterval", "10");
        System.setProperty("rocketmq.client.rebalance.waitInterval", "" + NOTICE_MS);
    }

    private Clients() {
    }

    static <P extends DefaultMQProducer> P started(P producer, Broker broker) throws Exception {
        producer.setNamesrvAddr(broker.namesrvAddr());
        producer.setSendMsgTimeout((int) TimeUnit.SECONDS.toMillis(PATIENCE_S));
        producer.start();
        return producer;
    }

    /** A consumer of everything in a topic; it has no listener yet and is not started. */
    static DefaultMQPushConsumer consumer(Broker broker, String group, String topic)
        throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(broker.namesrvAddr());
        consumer.setPollNameServerInterval(NOTICE_MS); // a group's retry topic is made at its start
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        return consumer;
    }

    /** The end of patience by {@link System#nanoTime}. */
    static long patienceEnd() {
        return System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_S);
    }

    static Message message(String topic, String body) {
        return new Message(topic, "created", KEY, body.getBytes(StandardCharsets.UTF_8));
    }

    static String body(MessageExt message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    static MessageExt next(BlockingQueue<MessageExt> received) throws InterruptedException {
        MessageExt message = received.poll(PATIENCE_S, TimeUnit.SECONDS);
        if (message == null) {
            throw new AssertionError("no message arrived in " + PATIENCE_S + " s");
        }
        return message;
    }
}
