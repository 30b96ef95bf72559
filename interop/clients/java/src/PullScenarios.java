import java.util.ArrayList;
import java.util.List;
import java.util.stream.IntStream;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.store.ReadOffsetType;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Scenarios: pull consumers. */
@SuppressWarnings("deprecation")
final class PullScenarios {
    static final int COUNT = 10;

    private PullScenarios() {
    }

    /** One queue, pulled by offset, and the offset that is kept for the group. */
    static void queue(Stage stage) throws Exception {
        sendNumbers(stage);
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(stage.topic, Stage.HOOK);
        consumer.setNamesrvAddr(stage.namesrv);
        consumer.setInstanceName(stage.topic);
        consumer.start();
        stage.atEnd(consumer::shutdown);
        MessageQueue queue = consumer.fetchSubscribeMessageQueues(stage.topic).iterator().next();
        awaitAll(consumer, queue);
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

    /** Apache's broker answers a send before its queue has the message. */
    private static void awaitAll(DefaultMQPullConsumer consumer, MessageQueue queue)
        throws Exception {
        for (int tries = 0; tries < 50 && consumer.maxOffset(queue) < COUNT; tries++) {
            Stage.pause();
        }
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

    static void sendNumbers(Stage stage) throws Exception {
        stage.send(IntStream.range(0, COUNT).mapToObj(String::valueOf).toArray(String[]::new));
    }
}
