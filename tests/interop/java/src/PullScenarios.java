import java.util.ArrayList;
import java.util.List;
import java.util.stream.IntStream;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.store.ReadOffsetType;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Consumers that ask for messages themselves. */
@SuppressWarnings("deprecation")
final class PullScenarios {
    private static final int COUNT = 10;

    private PullScenarios() {
    }

    /** One queue, pulled by offset, and the offset that is kept for the group. */
    static void queue(Stage stage) throws Exception {
        sendNumbers(stage);
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(stage.topic);
        consumer.setNamesrvAddr(stage.namesrv);
        consumer.setInstanceName(stage.topic);
        consumer.start();
        stage.atEnd(consumer::shutdown);
        MessageQueue queue = consumer.fetchSubscribeMessageQueues(stage.topic).iterator().next();
        List<Object> pulled = new ArrayList<>();
        for (long[] ask : new long[][] {{0, 4}, {4, 32}, {COUNT, 32}, {COUNT + 5, 32}}) {
            PullResult result = consumer.pull(queue, "*", ask[0], (int) ask[1]);
            List<MessageExt> found = result.getMsgFoundList();
            pulled.add(List.of(result.getPullStatus(), result.getNextBeginOffset(),
                result.getMinOffset(), result.getMaxOffset(),
                found == null ? List.of() : Stage.each(found, Stage::body)));
        }
        stage.facts.put("pulled", pulled);
        stage.facts.put("ends", List.of(consumer.minOffset(queue), consumer.maxOffset(queue),
            consumer.searchOffset(queue, 0), consumer.searchOffset(queue, Long.MAX_VALUE)));
        consumer.updateConsumeOffset(queue, 7);
        consumer.getOffsetStore().persist(queue);
        stage.facts.put("kept", awaitKept(consumer, queue, 7));
    }

    /** Offsets are persisted oneway. */
    private static long awaitKept(DefaultMQPullConsumer consumer, MessageQueue queue, long offset)
        throws Exception {
        long kept = -1;
        for (int tries = 0; tries < 50 && kept != offset; tries++) {
            Stage.pause();
            kept = consumer.getOffsetStore().readOffset(queue, ReadOffsetType.READ_FROM_STORE);
        }
        return kept;
    }

    /** A lite pull consumer that shares the queues with its group, and one that goes on. */
    static void subscribed(Stage stage) throws Exception {
        sendNumbers(stage);
        DefaultLitePullConsumer first = lite(stage, "first");
        first.subscribe(stage.topic, "*");
        first.start();
        List<MessageExt> got = poll(first, COUNT);
        first.commitSync();
        first.shutdown();
        stage.send("more");
        DefaultLitePullConsumer second = lite(stage, "second");
        second.subscribe(stage.topic, "*");
        second.start();
        stage.atEnd(second::shutdown);
        stage.facts.put("first", Stage.each(got, Stage::body));
        stage.facts.put("second", Stage.each(poll(second, 1), Stage::body));
    }

    /** A lite pull consumer that takes one queue by itself, goes back in it and commits. */
    static void assigned(Stage stage) throws Exception {
        sendNumbers(stage);
        DefaultLitePullConsumer consumer = lite(stage, "one");
        consumer.start();
        stage.atEnd(consumer::shutdown);
        MessageQueue queue = consumer.fetchMessageQueues(stage.topic).iterator().next();
        consumer.assign(List.of(queue));
        consumer.seekToBegin(queue);
        stage.facts.put("all", Stage.each(poll(consumer, COUNT), Stage::body));
        consumer.seek(queue, 6);
        stage.facts.put("again", Stage.each(poll(consumer, 4), Stage::body));
        consumer.commitSync();
        stage.facts.put("committed", consumer.committed(queue));
        stage.facts.put("by_time", List.of(consumer.offsetForTimestamp(queue, 0L),
            consumer.offsetForTimestamp(queue, System.currentTimeMillis() + 60_000)));
    }

    private static void sendNumbers(Stage stage) throws Exception {
        stage.send(IntStream.range(0, COUNT).mapToObj(String::valueOf).toArray(String[]::new));
    }

    private static DefaultLitePullConsumer lite(Stage stage, String instance) {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(stage.topic);
        consumer.setNamesrvAddr(stage.namesrv);
        consumer.setInstanceName(stage.topic + instance);
        consumer.setAutoCommit(false);
        consumer.setPullThreadNums(2);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        return consumer;
    }

    /** What polls bring until there are so many, in 50 s. */
    private static List<MessageExt> poll(DefaultLitePullConsumer consumer, int count) {
        List<MessageExt> got = new ArrayList<>();
        for (int tries = 0; tries < 50 && got.size() < count; tries++) {
            got.addAll(consumer.poll(1000));
        }
        return got;
    }
}
