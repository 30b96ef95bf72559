import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Scenarios: lite pull consumers. */
final class LitePullScenarios {
    private LitePullScenarios() {
    }

    /** A lite pull consumer that shares the queues with its group, and one that goes on. */
    static void subscribed(Stage stage) throws Exception {
        PullScenarios.sendNumbers(stage);
        DefaultLitePullConsumer first = lite(stage, "first");
        first.subscribe(stage.topic, "*");
        first.start();
        List<MessageExt> got = poll(first, PullScenarios.COUNT);
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
        PullScenarios.sendNumbers(stage);
        DefaultLitePullConsumer consumer = lite(stage, "one");
        consumer.start();
        stage.atEnd(consumer::shutdown);
        MessageQueue queue = consumer.fetchMessageQueues(stage.topic).iterator().next();
        consumer.assign(List.of(queue));
        consumer.seekToBegin(queue);
        stage.facts.put("all", Stage.each(poll(consumer, PullScenarios.COUNT), Stage::body));
        consumer.seek(queue, 6);
        stage.facts.put("again", Stage.each(poll(consumer, 4), Stage::body));
        consumer.commitSync();
        stage.facts.put("committed", consumer.committed(queue));
        stage.facts.put("by_time", List.of(consumer.offsetForTimestamp(queue, 0L),
            consumer.offsetForTimestamp(queue, System.currentTimeMillis() + 60_000)));
    }

    private static DefaultLitePullConsumer lite(Stage stage, String instance) {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(stage.topic, Stage.HOOK);
        consumer.setNamesrvAddr(stage.namesrv);
        consumer.setInstanceName(stage.topic + instance);
        consumer.setAutoCommit(false);
        consumer.setPullThreadNums(2);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        return consumer;
    }

    /** The messages of repeated polls until there are `count`, for at most 50 s. */
    private static List<MessageExt> poll(DefaultLitePullConsumer consumer, int count) {
        List<MessageExt> got = new ArrayList<>();
        for (int tries = 0; tries < 50 && got.size() < count; tries++) {
            got.addAll(consumer.poll(1000));
        }
        return got;
    }
}
