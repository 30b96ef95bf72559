import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Scenarios: push consumers that pop, from queues that the broker assigns.
 *
 * Only the client of 5.x can; reflection lets the file compile with that of 4.9.7.
 */
final class PopScenarios {
    private static final int QUEUE_COUNT = 4;
    private static final long INVISIBLE_MS = 60_000;
    /** The least that the client accepts. */
    private static final long SHORT_MS = 5_000;
    /**
     * For groups whose members change. A pop that waits at the broker when its consumer gives the
     * queue up may still get messages: they are not consumed, and come again after this time.
     */
    private static final long CHANGING_MS = 10_000;
    private static final long FIRST_DELAY_MS = 10_000;
    private static final long CALL_TIMEOUT_MS = 10_000;
    private static final long SETTLE_NS = TimeUnit.SECONDS.toNanos(50);
    private static final String[] TAGS = {"A", "B", "C", null, "AaAa", "BBBB", "B"};

    /** A message and its consumer. */
    private record Got(String who, int queue, boolean popped, String body) {
    }

    private PopScenarios() {
    }

    /** How the consumers of the scenario's group get its messages: "POP" or "PULL". */
    static void setMode(Stage stage, String mode, int share) throws Exception {
        MQClientInstance instance =
            stage.producer().getDefaultMQProducerImpl().getMqClientFactory();
        Object api = instance.getMQClientAPIImpl();
        Method set = Arrays.stream(api.getClass().getMethods())
            .filter(method -> method.getName().equals("setMessageRequestMode"))
            .findFirst().orElseThrow();
        Set<String> brokers = new HashSet<>();
        for (MessageQueue queue : stage.producer().fetchPublishMessageQueues(stage.topic)) {
            brokers.add(queue.getBrokerName());
        }
        for (String broker : brokers) {
            try {
                set.invoke(api, instance.findBrokerAddressInPublish(broker), stage.topic,
                    stage.topic, constant(set.getParameterTypes()[3], mode), share,
                    CALL_TIMEOUT_MS);
            } catch (InvocationTargetException e) {
                throw (Exception) e.getCause();
            }
        }
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static Object constant(Class<?> type, String name) {
        return Enum.valueOf((Class<Enum>) type, name);
    }

    /** A consumer that asks the broker for its queues, and pops from them in mode "POP". */
    static DefaultMQPushConsumer consumer(Stage stage, String who, long invisibleMs)
        throws Exception {
        DefaultMQPushConsumer consumer =
            stage.prepare(Stage.newConsumer(stage.topic), stage.topic + who);
        Class<?> type = DefaultMQPushConsumer.class;
        type.getMethod("setClientRebalance", boolean.class).invoke(consumer, false);
        type.getMethod("setPopInvisibleTime", long.class).invoke(consumer, invisibleMs);
        return consumer;
    }

    private static DefaultMQPushConsumer start(Stage stage, String who, Inbox<Got> inbox)
        throws Exception {
        DefaultMQPushConsumer consumer = consumer(stage, who, CHANGING_MS);
        consumer.subscribe(stage.topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> inbox.put(new Got(who, queueOf(message),
                message.getProperty("POP_CK") != null, Stage.body(message))));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        stage.atEnd(consumer::shutdown);
        return consumer;
    }

    /** The queue of the topic that a message came from; -1: it came again, from a retry topic. */
    private static int queueOf(MessageExt message) {
        return message.getReconsumeTimes() > 0 ? -1 : message.getQueueId();
    }

    /** Messages from before the start and from after it, from all queues. */
    static void concurrent(Stage stage) throws Exception {
        setMode(stage, "POP", 0);
        sendNumbers(stage, 0, 20);
        DefaultMQPushConsumer consumer = consumer(stage, "only", INVISIBLE_MS);
        consumer.subscribe(stage.topic, "*");
        Inbox<MessageExt> inbox = stage.listen(consumer);
        inbox.await(20);
        sendNumbers(stage, 20, 40);
        List<MessageExt> got = inbox.await(40);
        stage.facts.put("count", got.size());
        stage.facts.put("received",
            got.stream().map(Stage::body).map(Integer::valueOf).sorted().toList());
        stage.facts.put("queues", got.stream().map(MessageExt::getQueueId).distinct().count());
        stage.facts.put("times",
            got.stream().map(MessageExt::getReconsumeTimes).distinct().toList());
        stage.facts.put("popped",
            got.stream().allMatch(message -> message.getProperty("POP_CK") != null));
    }

    private static void sendNumbers(Stage stage, int first, int end) throws Exception {
        for (int number = first; number < end; number++) {
            stage.sendTo(number % QUEUE_COUNT, stage.message(null, null, "" + number));
        }
    }

    /** AaAa and BBBB have one hash code, and a consume queue stores only the hash code. */
    static void tags(Stage stage) throws Exception {
        setMode(stage, "POP", 0);
        for (int number = 0; number < TAGS.length; number++) {
            stage.producer().send(stage.message(TAGS[number], null, "" + number));
        }
        DefaultMQPushConsumer consumer = consumer(stage, "only", INVISIBLE_MS);
        consumer.subscribe(stage.topic, "A || B || AaAa");
        List<MessageExt> got = stage.listen(consumer).await(4);
        stage.facts.put("received", got.stream().map(Stage::body).sorted().toList());
    }

    /** A message that is refused once comes again after a time, as what it was. */
    static void later(Stage stage) throws Exception {
        setMode(stage, "POP", 0);
        SendResult result = stage.producer().send(stage.message("Tag", "key", "fails"));
        Inbox<MessageExt> tries = new Inbox<>();
        Inbox<Long> times = new Inbox<>();
        DefaultMQPushConsumer consumer = consumer(stage, "only", INVISIBLE_MS);
        consumer.subscribe(stage.topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            times.put(System.currentTimeMillis());
            messages.forEach(tries::put);
            return messages.get(0).getReconsumeTimes() == 0
                ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        stage.atEnd(consumer::shutdown);
        stage.facts.put("tries", Stage.each(tries.await(2), message -> List.of(
            message.getReconsumeTimes(), message.getTopic().equals(stage.topic), message.getTags(),
            message.getKeys(), message.getMsgId().equals(result.getMsgId()))));
        stage.facts.put("early", times.all().get(1) - times.all().get(0) < FIRST_DELAY_MS);
    }

    /** What a consumer had when it ended without a word goes to another one. */
    static void takenOver(Stage stage) throws Exception {
        setMode(stage, "POP", 0);
        sendNumbers(stage, 0, QUEUE_COUNT);
        CountDownLatch over = new CountDownLatch(1);
        Inbox<MessageExt> first = new Inbox<>();
        DefaultMQPushConsumer hanging = consumer(stage, "first", SHORT_MS);
        hanging.setConsumeThreadMin(QUEUE_COUNT);
        hanging.setConsumeThreadMax(QUEUE_COUNT);
        hanging.setAwaitTerminationMillisWhenShutdown(0);
        hanging.subscribe(stage.topic, "*");
        hanging.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(first::put);
            while (over.getCount() > 0) {
                Stage.pause();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        stage.atEnd(over::countDown);
        hanging.start();
        stage.facts.put("first", bodies(first.await(QUEUE_COUNT)));
        long start = System.currentTimeMillis();
        hanging.shutdown();
        DefaultMQPushConsumer second = consumer(stage, "second", INVISIBLE_MS);
        second.subscribe(stage.topic, "*");
        List<MessageExt> again = stage.listen(second).await(QUEUE_COUNT);
        stage.facts.put("second", bodies(again));
        stage.facts.put("times",
            again.stream().map(MessageExt::getReconsumeTimes).distinct().toList());
        stage.facts.put("own_topic",
            again.stream().allMatch(message -> message.getTopic().equals(stage.topic)));
        stage.facts.put("late", System.currentTimeMillis() - start > 10 * SHORT_MS);
    }

    private static List<String> bodies(List<MessageExt> messages) {
        return messages.stream().map(Stage::body).sorted().toList();
    }

    /** Two consumers pop from the same queues; each message goes to one of them. */
    static void together(Stage stage) throws Exception {
        setMode(stage, "POP", 0);
        Inbox<Got> inbox = new Inbox<>();
        start(stage, "a", inbox);
        DefaultMQPushConsumer second = start(stage, "b", inbox);
        List<String> sent = new ArrayList<>();
        stage.facts.put("two", untilServed(stage, inbox, sent, Set.of("a", "b")));
        second.shutdown();
        int before = inbox.all().size();
        sendAll(stage, sent, "end");
        List<Got> all = inbox.await(got -> missing(sent, got).isEmpty());
        stage.facts.put("one",
            new TreeSet<>(all.subList(before, all.size()).stream().map(Got::who).toList()));
        stage.facts.put("again", again(all));
    }

    /** Who got messages, sent one to each queue at a time until all of them did. */
    private static Set<String> untilServed(Stage stage, Inbox<Got> inbox, List<String> sent,
        Set<String> wanted) throws Exception {
        long end = System.nanoTime() + SETTLE_NS;
        Set<String> served = new TreeSet<>();
        for (int turn = 0; !served.equals(wanted) && System.nanoTime() < end; turn++) {
            sendAll(stage, sent, "" + turn);
            inbox.await(got -> missing(sent, got).isEmpty())
                .forEach(got -> served.add(got.who()));
        }
        return served;
    }

    private static void sendAll(Stage stage, List<String> sent, String mark) throws Exception {
        for (int queue = 0; queue < QUEUE_COUNT; queue++) {
            String body = mark + "/" + queue;
            stage.sendTo(queue, stage.message(null, null, body));
            sent.add(body);
        }
    }

    private static List<String> missing(List<String> sent, List<Got> all) {
        Set<String> came = new HashSet<>(all.stream().map(Got::body).toList());
        return sent.stream().filter(body -> !came.contains(body)).toList();
    }

    /** How many messages came besides the first of each, by the same way. */
    private static long again(List<Got> all) {
        return all.size()
            - all.stream().map(got -> got.popped() + got.body()).distinct().count();
    }

    /** Three consumers: each pops from its own queues and from those of the next one. */
    static void shared(Stage stage) throws Exception {
        setMode(stage, "POP", 1);
        Map<String, Set<Integer>> wanted =
            Map.of("a", Set.of(0, 1, 2), "b", Set.of(2, 3), "c", Set.of(0, 1, 3));
        Inbox<Got> inbox = new Inbox<>();
        for (String who : new TreeSet<>(wanted.keySet())) {
            start(stage, who, inbox);
        }
        stage.facts.put("queues", settled(stage, inbox, wanted));
    }

    /** The queues from which each consumer gets messages, once they are as wanted for a time. */
    private static Map<String, Set<Integer>> settled(Stage stage, Inbox<Got> inbox,
        Map<String, Set<Integer>> wanted) throws Exception {
        long end = System.nanoTime() + SETTLE_NS;
        Map<String, Set<Integer>> queues = new TreeMap<>();
        List<String> sent = new ArrayList<>();
        for (int turn = 0; System.nanoTime() < end && !queues.equals(wanted); turn++) {
            int before = inbox.all().size();
            sendAll(stage, sent, "" + turn);
            List<Got> all = inbox.await(got -> missing(sent, got).isEmpty());
            for (Got got : all.subList(before, all.size())) {
                if (got.queue() < 0) {
                    continue;
                }
                queues.computeIfAbsent(got.who(), who -> new TreeSet<>()).add(got.queue());
                if (!wanted.get(got.who()).contains(got.queue())) {
                    queues.clear();
                }
            }
        }
        return queues;
    }

    /**
     * A group that pulls, then pops, then pulls again: neither way gives a message twice.
     *
     * At the moment of a change, a message that is not acknowledged yet may come by both ways.
     */
    static void switched(Stage stage) throws Exception {
        Inbox<Got> inbox = new Inbox<>();
        List<String> sent = new ArrayList<>();
        setMode(stage, "PULL", 0);
        start(stage, "only", inbox);
        List<Boolean> popped = new ArrayList<>();
        for (String mode : new String[] {"PULL", "POP", "PULL"}) {
            setMode(stage, mode, 0);
            popped.add(untilMode(stage, inbox, sent, mode.equals("POP"), popped.size()));
        }
        List<Got> all = inbox.all();
        stage.facts.put("popped", popped);
        stage.facts.put("again", again(all));
    }

    /** Whether the last messages were popped, sent one to each queue until it is as wanted. */
    private static boolean untilMode(Stage stage, Inbox<Got> inbox, List<String> sent,
        boolean wanted, int phase) throws Exception {
        long end = System.nanoTime() + SETTLE_NS;
        for (int turn = 0; ; turn++) {
            String mark = phase + "-" + turn;
            sendAll(stage, sent, mark);
            List<Got> all = inbox.await(got -> missing(sent, got).isEmpty());
            boolean isAsWanted = all.stream().filter(got -> got.body().startsWith(mark + "/"))
                .allMatch(got -> got.popped() == wanted);
            if (isAsWanted || System.nanoTime() > end) {
                return isAsWanted == wanted;
            }
        }
    }
}
