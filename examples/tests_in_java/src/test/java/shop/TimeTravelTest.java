package shop;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageRequestMode;
import org.apache.rocketmq.common.topic.TopicValidator;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.MethodOrderer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInfo;
import org.junit.jupiter.api.TestMethodOrder;
import org.junit.jupiter.api.Timeout;
import trocket.junit.Broker;
import trocket.junit.RocketMQ;

/** What takes a broker hours in real time: each test prints the seconds that it took. */
@RocketMQ
@TestMethodOrder(MethodOrderer.MethodName.class) // the first one loads the client's classes, too
@Timeout(120) // seconds; a second or two each on a machine that is not busy
class TimeTravelTest {
    /** Retries of a message before it becomes a dead letter. */
    private static final int RETRIES = 16;
    private static final Duration LONGEST_RETRY = Duration.ofHours(2);
    private static final long SOON_MS = 5;

    private static Broker broker;
    private static DefaultMQProducer producer;

    private final String topic = "orders-" + UUID.randomUUID();
    private final String group = "billing-" + UUID.randomUUID();
    private final BlockingQueue<MessageExt> received = new LinkedBlockingQueue<>();
    private final List<Runnable> ends = new ArrayList<>();
    private final long startNs = System.nanoTime();

    @BeforeAll
    static void startProducer(Broker started) throws Exception {
        broker = started;
        producer = Clients.started(new DefaultMQProducer("shop"), broker);
    }

    @AfterAll
    static void closeProducer() {
        producer.shutdown();
    }

    @AfterEach
    void close(TestInfo test) {
        System.out.printf("%s: %.2f s of real time%n", test.getDisplayName(),
            (System.nanoTime() - startNs) / 1e9);
        ends.forEach(Runnable::run);
    }

    private void consume(DefaultMQPushConsumer consumer, MessageListenerConcurrently listener)
        throws Exception {
        consumer.registerMessageListener(listener);
        consumer.start();
        ends.add(0, consumer::shutdown);
    }

    private ConsumeConcurrentlyStatus take(List<MessageExt> messages) {
        received.addAll(messages);
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
    }

    @Test
    void aReminderComesAfterTwoHours() throws Exception {
        Message reminder = Clients.message(topic, "pay");
        reminder.setDelayTimeSec(TimeUnit.HOURS.toSeconds(2));
        producer.send(reminder);
        consume(Clients.consumer(broker, group, topic), (messages, context) -> take(messages));

        broker.advance(Duration.ofHours(2).minusMinutes(1));
        assertNull(received.poll(SOON_MS, TimeUnit.MILLISECONDS));
        broker.advance(Duration.ofMinutes(1));
        assertEquals("pay", Clients.body(Clients.next(received)));
    }

    @Test
    void anOrderIsADeadLetterAfterSixteenRetries() throws Exception {
        // The consumer would make it, and notice it half a second later.
        producer.createTopic(TopicValidator.AUTO_CREATE_TOPIC_KEY_TOPIC,
            MixAll.getRetryTopic(group), 1, Map.of());
        producer.send(Clients.message(topic, "bread"));
        BlockingQueue<MessageExt> failed = new LinkedBlockingQueue<>();
        consume(Clients.consumer(broker, group, topic), (messages, context) -> {
            failed.addAll(messages);
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        assertEquals(0, Clients.next(failed).getReconsumeTimes());
        for (int retry = 1; retry <= RETRIES; retry++) {
            assertEquals(retry, nextAdvancing(failed).getReconsumeTimes());
        }
        assertEquals("bread", Clients.body(deadLetter()));
    }

    /** The next delivery. The client gives a failed message back when its listener has returned. */
    private MessageExt nextAdvancing(BlockingQueue<MessageExt> failed) throws InterruptedException {
        MessageExt next = null;
        for (long end = Clients.patienceEnd(); next == null && System.nanoTime() < end;) {
            broker.advance(LONGEST_RETRY);
            next = failed.poll(SOON_MS, TimeUnit.MILLISECONDS);
        }
        assertTrue(next != null, "it came no more");
        return next;
    }

    /** What the broker gave up, found by its key. */
    private MessageExt deadLetter() throws Exception {
        for (long end = Clients.patienceEnd();;) {
            try {
                return producer.queryMessage(MixAll.getDLQTopic(group), Clients.KEY, 1, 0,
                    Long.MAX_VALUE).getMessageList().get(0);
            } catch (MQClientException e) { // there is none, or not even the topic
                if (System.nanoTime() > end) {
                    throw e;
                }
            }
        }
    }

    @Test
    void anOpenTransactionIsAskedAbout() throws Exception {
        BlockingQueue<MessageExt> checked = new LinkedBlockingQueue<>();
        // With a topic, it makes itself known to the broker at its start: there it is asked.
        TransactionMQProducer seller = new TransactionMQProducer("seller-" + group, List.of(topic));
        seller.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return LocalTransactionState.UNKNOW;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                checked.add(message);
                return LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        Clients.started(seller, broker);
        ends.add(0, seller::shutdown);
        seller.sendMessageInTransaction(Clients.message(topic, "house"), null);
        assertNull(checked.poll());

        broker.advance(Duration.ofMinutes(1));
        assertEquals("house", Clients.body(Clients.next(checked)));
        consume(Clients.consumer(broker, group, topic), (messages, context) -> take(messages));
        assertEquals("house", Clients.body(Clients.next(received)));
    }

    @Test
    void anOrderThatIsNotAcknowledgedComesAgain() throws Exception {
        producer.send(Clients.message(topic, "bread"));
        producer.getDefaultMQProducerImpl().getMqClientFactory().getMQClientAPIImpl()
            .setMessageRequestMode(broker.brokerAddr(), topic, group, MessageRequestMode.POP, 0,
                TimeUnit.SECONDS.toMillis(Clients.PATIENCE_S));
        CountDownLatch isOver = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = Clients.consumer(broker, group, topic);
        consumer.setClientRebalance(false); // the broker assigns queues, and how to consume them
        consumer.setPopInvisibleTime(Duration.ofMinutes(5).toMillis());
        consume(consumer, (messages, context) -> {
            take(messages);
            if (messages.get(0).getReconsumeTimes() == 0) {
                await(isOver); // it hangs: the order is not acknowledged in time
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        ends.add(0, isOver::countDown);
        assertEquals(0, Clients.next(received).getReconsumeTimes());

        broker.advance(Duration.ofMinutes(5));
        MessageExt again = Clients.next(received);
        assertEquals("bread", Clients.body(again));
        assertEquals(1, again.getReconsumeTimes());
    }

    private static void await(CountDownLatch latch) {
        try {
            latch.await();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }
}
