import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.IntStream;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Scenarios: push consumers. */
final class PushScenarios {
    private static final int QUEUE_COUNT = 4;
    private static final String[] TAGS = {"A", "B", "C", null, "AaAa", "BBBB", "B"};

    private PushScenarios() {
    }

    /** Messages from before the start and from after it, from all queues. */
    static void concurrent(Stage stage) throws Exception {
        sendNumbers(stage, 0, 20);
        Inbox<MessageExt> inbox = stage.inbox("*");
        inbox.await(20);
        sendNumbers(stage, 20, 40);
        List<MessageExt> got = inbox.await(40);
        stage.facts.put("count", got.size());
        stage.facts.put("received", got.stream().map(Stage::body).map(Integer::valueOf).sorted().toList());
        stage.facts.put("queues", got.stream().map(MessageExt::getQueueId).distinct().count());
        stage.facts.put("times", got.stream().map(MessageExt::getReconsumeTimes).distinct().toList());
    }

    private static void sendNumbers(Stage stage, int first, int end) throws Exception {
        for (int number = first; number < end; number++) {
            stage.sendTo(number % QUEUE_COUNT, stage.message(null, null, "" + number));
        }
    }

    /** The second message of each queue is refused twice: its queue waits, in its order. */
    static void orderly(Stage stage) throws Exception {
        for (int number = 0; number < 4; number++) {
            for (int queue = 0; queue < 2; queue++) {
                stage.sendTo(queue, stage.message(null, null, queue + "/" + number));
            }
        }
        Inbox<MessageExt> inbox = new Inbox<>();
        Map<String, Integer> tries = new ConcurrentHashMap<>();
        DefaultMQPushConsumer consumer = stage.consumer();
        consumer.setConsumeThreadMin(2);
        consumer.setConsumeThreadMax(2);
        consumer.subscribe(stage.topic, "*");
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            MessageExt message = messages.get(0);
            inbox.put(message);
            boolean refused = Stage.body(message).endsWith("/1")
                && tries.merge(Stage.body(message), 1, Integer::sum) <= 2;
            context.setSuspendCurrentQueueTimeMillis(100);
            return refused ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
                : ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        stage.atEnd(consumer::shutdown);
        Map<String, List<String>> byQueue = new TreeMap<>();
        for (MessageExt message : inbox.await(12)) {
            String[] words = Stage.body(message).split("/");
            byQueue.computeIfAbsent(words[0], queue -> new ArrayList<>()).add(words[1]);
        }
        stage.facts.put("by_queue", byQueue);
    }

    /** Each of two consumers gets everything. */
    static void broadcasting(Stage stage) throws Exception {
        List<Inbox<MessageExt>> inboxes = new ArrayList<>();
        for (String instance : new String[] {"first", "second"}) {
            DefaultMQPushConsumer consumer =
                stage.prepare(Stage.newConsumer(stage.topic), stage.topic + instance);
            // The enum's package differs between the versions.
            consumer.setMessageModel(
                Enum.valueOf(consumer.getMessageModel().getDeclaringClass(), "BROADCASTING"));
            consumer.subscribe(stage.topic, "*");
            inboxes.add(stage.listen(consumer));
        }
        sendNumbers(stage, 0, 8);
        for (Inbox<MessageExt> inbox : inboxes) {
            inbox.await(8);
        }
        stage.facts.put("received", Stage.each(inboxes, inbox -> inbox.all().stream()
            .map(Stage::body).map(Integer::valueOf).sorted().toList()));
    }

    /** One consumer of two topics, each by other tags. */
    static void twoTopics(Stage stage) throws Exception {
        DefaultMQPushConsumer consumer = stage.consumer();
        consumer.subscribe(stage.topic, "A");
        consumer.subscribe(stage.topic + "_more", "B");
        Inbox<MessageExt> inbox = stage.listen(consumer);
        for (String topic : new String[] {stage.topic, stage.topic + "_more"}) {
            for (String tag : new String[] {"A", "B", "A", "B"}) {
                stage.producer().send(new Message(topic, tag, tag.getBytes()));
            }
        }
        Map<Boolean, List<String>> byTopic = new TreeMap<>();
        for (MessageExt message : inbox.await(4)) {
            byTopic.computeIfAbsent(message.getTopic().endsWith("_more"), more -> new ArrayList<>())
                .add(Stage.body(message));
        }
        stage.facts.put("first", byTopic.get(false));
        stage.facts.put("second", byTopic.get(true));
    }

    /** AaAa and BBBB have one hash code, and a consume queue stores only the hash code. */
    static void tags(Stage stage) throws Exception {
        for (int number = 0; number < TAGS.length; number++) {
            stage.producer().send(stage.message(TAGS[number], null, "" + number));
        }
        stage.facts.put("received", Stage.each(stage.inbox("A || B || AaAa").await(4), Stage::body));
    }

    /** The last message matches: when it is received, all before it have been filtered. */
    static void sql(Stage stage) throws Exception {
        for (int number : IntStream.rangeClosed(0, 20).toArray()) {
            Message message = stage.message(null, null, "" + number);
            message.putUserProperty("price", "" + number);
            message.putUserProperty("region", number % 2 == 0 ? "eu" : "us");
            stage.producer().send(message);
        }
        DefaultMQPushConsumer consumer = stage.consumer();
        consumer.subscribe(stage.topic,
            MessageSelector.bySql("price > 10 AND region = 'eu' OR price BETWEEN 3 AND 4"));
        stage.facts.put("received", Stage.each(stage.listen(consumer).await(7), Stage::body));
    }
}
