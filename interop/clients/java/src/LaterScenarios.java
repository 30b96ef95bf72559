import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Scenarios: delayed messages, timers, and retries after failures. */
final class LaterScenarios {
    private static final long LEVEL_1_MS = 1000;
    private static final long TIMER_STEP_MS = 1000;

    private LaterScenarios() {
    }

    /** A message that always fails: two more tries, then the dead letters. */
    static void retry(Stage stage) throws Exception {
        SendResult result = stage.producer().send(stage.message("Tag", "key", "fails"));
        Inbox<MessageExt> tries = new Inbox<>();
        DefaultMQPushConsumer consumer = stage.consumer();
        consumer.setMaxReconsumeTimes(2);
        consumer.subscribe(stage.topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(tries::put);
            context.setDelayLevelWhenNextConsume(1);
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        consumer.start();
        stage.atEnd(consumer::shutdown);
        MessageExt dead = dead(stage);
        stage.facts.put("tries", Stage.each(tries.all(), message -> List.of(
            message.getReconsumeTimes(), message.getTopic().equals(stage.topic), message.getTags(),
            message.getKeys(), message.getMsgId().equals(result.getMsgId()))));
        stage.facts.put("dead", List.of(Stage.body(dead), dead.getReconsumeTimes(),
            stage.topic.equals(dead.getProperty("RETRY_TOPIC")),
            result.getOffsetMsgId().equals(dead.getProperty("ORIGIN_MESSAGE_ID"))));
    }

    /** Of four messages handed over together two are taken, and two come again. */
    static void partly(Stage stage) throws Exception {
        stage.send("0", "1", "2", "3");
        Inbox<List<Object>> came = new Inbox<>();
        DefaultMQPushConsumer consumer = stage.consumer();
        consumer.setConsumeMessageBatchMaxSize(4);
        consumer.subscribe(stage.topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message ->
                came.put(List.of(Stage.body(message), message.getReconsumeTimes())));
            if (messages.size() == 4) {
                context.setAckIndex(1);
                context.setDelayLevelWhenNextConsume(1);
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        stage.atEnd(consumer::shutdown);
        List<List<Object>> all = came.await(6);
        stage.facts.put("first", all.subList(0, 4));
        stage.facts.put("again", all.subList(4, 6).stream()
            .sorted((one, other) -> one.toString().compareTo(other.toString())).toList());
    }

    /** An orderly consumer that always refuses one message gets the next when that one is dead. */
    static void orderly(Stage stage) throws Exception {
        stage.send("poison", "next");
        Inbox<List<Object>> came = new Inbox<>();
        DefaultMQPushConsumer consumer = stage.consumer();
        consumer.setMaxReconsumeTimes(1);
        consumer.subscribe(stage.topic, "*");
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            MessageExt message = messages.get(0);
            came.put(List.of(Stage.body(message), message.getReconsumeTimes()));
            context.setSuspendCurrentQueueTimeMillis(100);
            return Stage.body(message).equals("next") ? ConsumeOrderlyStatus.SUCCESS
                : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
        });
        consumer.start();
        stage.atEnd(consumer::shutdown);
        MessageExt dead = dead(stage);
        came.await(all -> all.get(all.size() - 1).contains("next"));
        stage.facts.put("came", came.all());
        stage.facts.put("dead", List.of(Stage.body(dead), dead.getReconsumeTimes()));
    }

    private static MessageExt dead(Stage stage) throws Exception {
        DefaultMQPushConsumer undertaker =
            stage.prepare(Stage.newConsumer(stage.topic + "_dead"), "scenarios");
        undertaker.subscribe("%DLQ%" + stage.topic, "*");
        return stage.listen(undertaker).await(1).get(0);
    }

    static void level(Stage stage) throws Exception {
        Message message = stage.message("Tag", "key", "level-1");
        message.setDelayTimeLevel(1);
        SendResult result = stage.producer().send(message);
        MessageExt got = stage.receive(1).get(0);
        stage.facts.put("status", result.getSendStatus());
        stage.facts.put("received", List.of(Stage.body(got), got.getTags(), got.getKeys(),
            got.getTopic().equals(stage.topic), got.getDelayTimeLevel()));
        stage.facts.put("early", System.currentTimeMillis() - got.getBornTimestamp() < LEVEL_1_MS);
    }

    /** The last sent comes first; none comes more than the timer's step too early. */
    static void timer(Stage stage) throws Exception {
        Inbox<MessageExt> inbox = stage.inbox("*");
        long now = System.currentTimeMillis();
        Map<String, Long> due = new TreeMap<>();
        sendAt(stage, due, now + 7000, "setDelayTimeSec", "TIMER_DELAY_SEC", 7);
        sendAt(stage, due, now + 4500, "setDelayTimeMs", "TIMER_DELAY_MS", 4500);
        sendAt(stage, due, now + 2000, "setDeliverTimeMs", "TIMER_DELIVER_MS", now + 2000);
        Map<String, Boolean> early = new TreeMap<>();
        for (int count = 1; count <= due.size(); count++) {
            String body = Stage.body(inbox.await(count).get(count - 1));
            early.put(body, System.currentTimeMillis() < due.get(body) - TIMER_STEP_MS);
        }
        stage.facts.put("received", Stage.each(inbox.all(), Stage::body));
        stage.facts.put("early", early);
    }

    /** A timer message is recalled, the one behind it is delivered; only the client of 5.x can. */
    static void recall(Stage stage) throws Exception {
        stage.producer();
        long now = System.currentTimeMillis();
        Map<String, Long> due = new TreeMap<>();
        SendResult recalled =
            sendAt(stage, due, now + 6000, "setDeliverTimeMs", "TIMER_DELIVER_MS", now + 6000);
        sendAt(stage, due, now + 8000, "setDelayTimeMs", "TIMER_DELAY_MS", 8000);
        String handle =
            (String) SendResult.class.getMethod("getRecallHandle").invoke(recalled);
        Object id = DefaultMQProducer.class.getMethod("recallMessage", String.class, String.class)
            .invoke(stage.producer(), stage.topic, handle);
        stage.facts.put("same_id", recalled.getMsgId().equals(id));
        stage.facts.put("received", Stage.each(stage.receive(1), Stage::body));
    }

    /** The client of 4.9.7 has no such setters; its users put the property. */
    private static SendResult sendAt(Stage stage, Map<String, Long> due, long at, String setter,
        String property, long value) throws Exception {
        Message message = stage.message(null, null, property);
        try {
            Message.class.getMethod(setter, long.class).invoke(message, value);
        } catch (NoSuchMethodException e) {
            message.putUserProperty(property, "" + value);
        }
        due.put(property, at);
        return stage.producer().send(message);
    }
}
