import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Function;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.RPCHook;

/** The context of a scenario: its topic, which is also its group's name, and its facts. */
final class Stage implements AutoCloseable {
    private static final int POLL_MS = 1000;
    private static final int LOOK_UPS_MAX = 20;
    private static final long PAUSE_NS = TimeUnit.MILLISECONDS.toNanos(100);
    /** Signs requests, when the program has an account; else null. */
    static final RPCHook HOOK = Signing.of(System.getenv("INTEROP_ACCOUNT"));
    private static DefaultMQProducer shared;

    /** Something that may throw. */
    interface Step {
        void run() throws Exception;
    }

    final String namesrv;
    final String topic;
    final Map<String, Object> facts = new LinkedHashMap<>();
    private final Deque<Step> ends = new ArrayDeque<>();

    Stage(String namesrv, String topic) {
        this.namesrv = namesrv;
        this.topic = topic;
    }

    /** Undo something when the scenario is over, last things first. */
    void atEnd(Step step) {
        ends.push(step);
    }

    @Override
    public void close() throws Exception {
        while (!ends.isEmpty()) {
            ends.pop().run();
        }
    }

    static void pause() {
        LockSupport.parkNanos(PAUSE_NS);
    }

    static String body(Message message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    static <T> List<Object> each(List<T> items, Function<T, Object> of) {
        return items.stream().map(of).toList();
    }

    /** The producer of all scenarios that need no other; threads are what a JVM spends on one. */
    DefaultMQProducer producer() throws Exception {
        synchronized (Stage.class) {
            if (shared == null) {
                shared = new DefaultMQProducer("scenarios", HOOK);
                prepare(shared, "scenarios").start();
            }
            return shared;
        }
    }

    /**
     * Look the routes up that the shared producer needs, before all scenarios do so at once:
     * look-ups of one client wait for each other, and after 3 s of that it takes a topic's queues
     * for those of TBW102. On a busy machine one may be late itself.
     */
    void lookUp() throws Exception {
        for (String name : new String[] {topic, topic + "_more"}) {
            for (int tries = 1; ; tries++) {
                try {
                    Version.lookUp(producer(), name);
                    break;
                } catch (IllegalStateException e) {
                    if (tries == LOOK_UPS_MAX) {
                        throw e;
                    }
                }
            }
        }
    }

    /** A producer of this scenario's own that has not been started. */
    <T extends DefaultMQProducer> T prepare(T producer, String instance) {
        producer.setNamesrvAddr(namesrv);
        producer.setInstanceName(instance);
        producer.setPollNameServerInterval(POLL_MS);
        producer.setSendMsgTimeout(10_000);
        return producer;
    }

    Message message(String tags, String keys, String body) {
        return new Message(topic, tags, keys, body.getBytes(StandardCharsets.UTF_8));
    }

    /** Send texts without tags, by turns to all queues. */
    void send(String... bodies) throws Exception {
        for (String body : bodies) {
            producer().send(message(null, null, body));
        }
    }

    /** Send to the queue of this number. */
    SendResult sendTo(int queue, Message message) throws Exception {
        return producer().send(message, (queues, each, number) -> queues.stream()
            .filter(one -> one.getQueueId() == queue).findFirst().orElseThrow(), null);
    }

    /** A push consumer that signs as the program does. */
    static DefaultMQPushConsumer newConsumer(String group) {
        return new DefaultMQPushConsumer(group, HOOK, new AllocateMessageQueueAveragely());
    }

    DefaultMQPushConsumer consumer() {
        return prepare(newConsumer(topic), "scenarios");
    }

    /** A push consumer with few threads that begins with the first message; not started. */
    DefaultMQPushConsumer prepare(DefaultMQPushConsumer consumer, String instance) {
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName(instance);
        consumer.setPollNameServerInterval(POLL_MS);
        consumer.setHeartbeatBrokerInterval(POLL_MS * 5);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        Version.finishWhenShutDown(consumer);
        consumer.setConsumeThreadMin(1);
        consumer.setConsumeThreadMax(1);
        return consumer;
    }

    /** Start a consumer that takes all it gets into an inbox. */
    Inbox<MessageExt> listen(DefaultMQPushConsumer consumer) throws Exception {
        Inbox<MessageExt> inbox = new Inbox<>();
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(inbox::put);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        atEnd(consumer::shutdown);
        return inbox;
    }

    /** The scenario's topic as one consumer of its group gets it. */
    Inbox<MessageExt> inbox(String expression) throws Exception {
        DefaultMQPushConsumer consumer = consumer();
        consumer.subscribe(topic, expression);
        return listen(consumer);
    }

    List<MessageExt> receive(int count) throws Exception {
        return inbox("*").await(count);
    }
}
