package trading;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/** The clients of all parts, and the topics and groups of this run, which no other run shares. */
final class Market implements AutoCloseable {
    private static final int SEND_TIMEOUT_MS = 10_000;
    private static final int HEARTBEAT_MS = 1000;

    private final String namesrv;
    private final String run;
    private final int timeoutSeconds;
    private final DefaultMQProducer producer;
    private final List<Runnable> shutdowns = new ArrayList<>();
    private long endNs;

    Market(String namesrv, String run, int timeoutSeconds) throws MQClientException {
        this.namesrv = namesrv;
        this.run = run;
        this.timeoutSeconds = timeoutSeconds;
        this.producer = started(new DefaultMQProducer(name("producers")), "producers");
    }

    /** The name of a topic or a group in this run. */
    String name(String of) {
        return "stock-" + of + "-" + run;
    }

    /** One producer serves all threads of a program. */
    DefaultMQProducer producer() {
        return producer;
    }

    TransactionMQProducer transactionProducer(String group, TransactionListener listener)
        throws MQClientException {
        TransactionMQProducer transactions = new TransactionMQProducer(name(group));
        transactions.setTransactionListener(listener);
        return started(transactions, group);
    }

    private <T extends DefaultMQProducer> T started(T made, String group)
        throws MQClientException {
        prepared(made, group).setSendMsgTimeout(SEND_TIMEOUT_MS);
        made.start();
        shutdowns.add(made::shutdown);
        return made;
    }

    private <T extends ClientConfig> T prepared(T client, String group) {
        client.setNamesrvAddr(namesrv);
        // A heartbeat that meets another of the same instance is left out, and nothing comes to a
        // new consumer until the next one: 30 s later by default.
        client.setInstanceName(name(group));
        client.setHeartbeatBrokerInterval(HEARTBEAT_MS);
        return client;
    }

    /** A consumer that still has to subscribe, to get its listener, and to be started. */
    DefaultMQPushConsumer consumer(String group) {
        DefaultMQPushConsumer consumer = prepared(new DefaultMQPushConsumer(name(group)), group);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        return consumer;
    }

    /**
     * Start a consumer. Its topic must be there: a consumer learns of one that is made later
     * only when it looks again, up to 30 s later.
     */
    void start(DefaultMQPushConsumer consumer) throws MQClientException {
        consumer.start();
        shutdowns.add(consumer::shutdown);
    }

    Message message(String topic, String tag, String key, String body) {
        return new Message(name(topic), tag, key, body.getBytes(StandardCharsets.UTF_8));
    }

    /** Everything is sent: from now on the run's time counts. */
    void startTime() {
        endNs = System.nanoTime() + TimeUnit.SECONDS.toNanos(timeoutSeconds);
    }

    /** Wait for a latch, but not longer than the run's time. */
    void await(CountDownLatch latch) throws InterruptedException {
        latch.await(endNs - System.nanoTime(), TimeUnit.NANOSECONDS);
    }

    @Override
    public void close() {
        shutdowns.forEach(Runnable::run);
    }
}
