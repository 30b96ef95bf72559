import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.store.ReadOffsetType;
import org.apache.rocketmq.client.impl.consumer.DefaultMQPushConsumerImpl;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Scenarios: where a group begins and resumes, and how it shares queues. */
final class GroupScenarios {
    private static final int QUEUE_COUNT = 4;
    private static final long SETTLE_NS = TimeUnit.SECONDS.toNanos(50);

    /** A message and its consumer. */
    private record Got(String who, String body) {
    }

    private GroupScenarios() {
    }

    static void fromFirst(Stage stage) throws Exception {
        from(stage, ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
    }

    /** A queue that still has its very first message in memory is young: LAST is its first. */
    static void fromLast(Stage stage) throws Exception {
        from(stage, ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
    }

    /** So is a time that has not come yet. */
    static void fromTime(Stage stage) throws Exception {
        from(stage, ConsumeFromWhere.CONSUME_FROM_TIMESTAMP);
    }

    private static void from(Stage stage, ConsumeFromWhere where) throws Exception {
        stage.send("before-0", "before-1", "before-2");
        DefaultMQPushConsumer consumer = stage.consumer();
        consumer.setConsumeFromWhere(where);
        consumer.setConsumeTimestamp("20990101000000");
        consumer.subscribe(stage.topic, "*");
        Inbox<MessageExt> inbox = stage.listen(consumer);
        stage.send("after-0", "after-1");
        stage.facts.put("received", Stage.each(inbox.await(5), Stage::body));
    }

    /** A new consumer of a group resumes behind what an ended one consumed. */
    static void goesOn(Stage stage) throws Exception {
        stage.send("0", "1", "2", "3", "4");
        // A heartbeat of a shared client may still name a group that has just been left.
        DefaultMQPushConsumer first =
            stage.prepare(Stage.newConsumer(stage.topic), stage.topic + "first");
        first.subscribe(stage.topic, "*");
        stage.facts.put("first", Stage.each(stage.listen(first).await(5), Stage::body));
        awaitOffsets(first, 5);
        first.shutdown();
        stage.send("5", "6", "7");
        DefaultMQPushConsumer second =
            stage.prepare(Stage.newConsumer(stage.topic), stage.topic + "second");
        second.subscribe(stage.topic, "*");
        stage.facts.put("second", Stage.each(stage.listen(second).await(3), Stage::body));
    }

    /** A message comes before its offset moves, and version 4.2.0 stops without waiting for that. */
    private static void awaitOffsets(DefaultMQPushConsumer consumer, long wanted) {
        long end = System.nanoTime() + SETTLE_NS;
        while (System.nanoTime() < end) {
            DefaultMQPushConsumerImpl inner = consumer.getDefaultMQPushConsumerImpl();
            long sum = 0;
            for (MessageQueue queue : inner.getRebalanceImpl().getProcessQueueTable().keySet()) {
                if (queue.getTopic().startsWith(MixAll.RETRY_GROUP_TOPIC_PREFIX)) {
                    continue;
                }
                sum += Math.max(0, inner.getOffsetStore().readOffset(queue,
                    ReadOffsetType.READ_FROM_MEMORY));
            }
            if (sum >= wanted) {
                return;
            }
            Stage.pause();
        }
    }

    /** A queue belongs to one consumer; a new one gets a share, which returns when it leaves. */
    static void rebalance(Stage stage) throws Exception {
        Inbox<Got> inbox = new Inbox<>();
        start(stage, "a", inbox);
        stage.facts.put("alone", settled(stage, inbox, Map.of("a", 4)));
        DefaultMQPushConsumer second = start(stage, "b", inbox);
        stage.facts.put("two", settled(stage, inbox, Map.of("a", 2, "b", 2)));
        second.shutdown();
        stage.facts.put("alone_again", settled(stage, inbox, Map.of("a", 4)));
    }

    private static DefaultMQPushConsumer start(Stage stage, String who, Inbox<Got> inbox)
        throws Exception {
        DefaultMQPushConsumer consumer =
            stage.prepare(Stage.newConsumer(stage.topic), stage.topic + who);
        consumer.subscribe(stage.topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> inbox.put(new Got(who, Stage.body(message))));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        stage.atEnd(consumer::shutdown);
        return consumer;
    }

    /** The queue count of each consumer, found by a message to each queue, until it is as wanted. */
    private static Map<String, Integer> settled(Stage stage, Inbox<Got> inbox,
        Map<String, Integer> wanted) throws Exception {
        long end = System.nanoTime() + SETTLE_NS;
        for (int turn = 0; ; turn++) {
            String mark = wanted + "/" + turn + "/";
            for (int queue = 0; queue < QUEUE_COUNT; queue++) {
                stage.sendTo(queue, stage.message(null, null, mark + queue));
            }
            List<Got> all = inbox.await(got -> bodies(got, mark) == QUEUE_COUNT);
            Map<String, Integer> queues = new TreeMap<>();
            all.stream().filter(got -> got.body.startsWith(mark)).distinct()
                .forEach(got -> queues.merge(got.who, 1, Integer::sum));
            if (queues.equals(wanted) || System.nanoTime() > end) {
                return queues;
            }
            Stage.pause();
        }
    }

    private static long bodies(List<Got> all, String mark) {
        return all.stream().map(Got::body).filter(body -> body.startsWith(mark)).distinct().count();
    }
}
