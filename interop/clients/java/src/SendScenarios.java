import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;

/** Scenarios: all ways to send; each consumes what it sent. */
final class SendScenarios {
    private static final int LARGER_THAN_ALLOWED = (4 << 20) + 1;

    private SendScenarios() {
    }

    static void sync(Stage stage) throws Exception {
        List<SendResult> results = new ArrayList<>();
        for (int number = 0; number < 3; number++) {
            Message message = stage.message("Tag" + number, "key-" + number + " shared", "body-" + number);
            message.putUserProperty("colour", "red-" + number);
            results.add(stage.producer().send(message));
        }
        List<MessageExt> got = stage.receive(3);
        stage.facts.put("statuses", Stage.each(results, SendResult::getSendStatus));
        stage.facts.put("offsets", Stage.each(results, SendResult::getQueueOffset));
        stage.facts.put("same_ids", Stage.each(results, SendResult::getMsgId)
            .equals(Stage.each(got, MessageExt::getMsgId)));
        stage.facts.put("same_offset_ids", Stage.each(results, SendResult::getOffsetMsgId)
            .equals(Stage.each(got, message -> ((MessageClientExt) message).getOffsetMsgId())));
        stage.facts.put("received", Stage.each(got, message -> List.of(Stage.body(message),
            message.getTags(), message.getKeys(), message.getProperty("colour"),
            message.getQueueOffset(), message.getReconsumeTimes())));
    }

    static void async(Stage stage) throws Exception {
        sendAsync(stage, stage.producer());
        stage.facts.put("received", sorted(stage.receive(10)));
    }

    private static void sendAsync(Stage stage, DefaultMQProducer producer) throws Exception {
        Inbox<String> answers = new Inbox<>();
        for (int number = 0; number < 10; number++) {
            producer.send(stage.message(null, null, "body-" + number), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    answers.put(result.getSendStatus().toString());
                }

                @Override
                public void onException(Throwable e) {
                    answers.put(e.toString());
                }
            });
        }
        stage.facts.put("statuses", new TreeSet<>(answers.await(10)));
    }

    static void oneway(Stage stage) throws Exception {
        for (int number = 0; number < 10; number++) {
            stage.producer().sendOneway(stage.message(null, null, "body-" + number));
        }
        stage.facts.put("received", sorted(stage.receive(10)));
    }

    static void batch(Stage stage) throws Exception {
        List<Message> messages = new ArrayList<>();
        for (int number = 0; number < 5; number++) {
            messages.add(stage.message("Tag" + number, "key-" + number, "body-" + number));
        }
        SendResult result = stage.producer().send(messages);
        List<MessageExt> got = stage.receive(5);
        stage.facts.put("status", result.getSendStatus());
        stage.facts.put("offset", result.getQueueOffset());
        stage.facts.put("received", Stage.each(got, message -> List.of(Stage.body(message),
            message.getTags(), message.getKeys(), message.getQueueOffset())));
        stage.facts.put("ids_returned", result.getMsgId().split(",").length);
        stage.facts.put("ids_stored", got.stream().map(MessageExt::getMsgId).distinct().count());
        stage.facts.put("offset_ids_returned", result.getOffsetMsgId().split(",").length);
    }

    static void bySelector(Stage stage) throws Exception {
        for (int step = 0; step < 4; step++) {
            for (int order = 0; order < 6; order++) {
                Message message = stage.message(null, null, order + "/" + step);
                stage.producer().send(message,
                    (queues, each, number) -> queues.get((Integer) number % queues.size()), order);
            }
        }
        Map<String, List<String>> steps = new TreeMap<>();
        Map<String, Set<Integer>> queues = new TreeMap<>();
        List<MessageExt> got = new ArrayList<>(stage.receive(24));
        got.sort(Comparator.comparing(MessageExt::getQueueOffset));
        for (MessageExt message : got) {
            String[] words = Stage.body(message).split("/");
            steps.computeIfAbsent(words[0], order -> new ArrayList<>()).add(words[1]);
            queues.computeIfAbsent(words[0], order -> new TreeSet<>()).add(message.getQueueId());
        }
        stage.facts.put("steps_of_each", steps);
        stage.facts.put("queues_of_each", queues.values().stream().map(Set::size).toList());
    }

    static void autoCreated(Stage stage) throws Exception {
        SendResult result = stage.producer().send(stage.message(null, null, "first"));
        stage.facts.put("status", result.getSendStatus());
        stage.facts.put("offset", result.getQueueOffset());
        stage.facts.put("received", sorted(stage.receive(1)));
        stage.facts.put("queues", stage.producer().fetchPublishMessageQueues(stage.topic).size());
    }

    static void tooLarge(Stage stage) throws Exception {
        DefaultMQProducer producer = stage.prepare(new DefaultMQProducer(stage.topic, Stage.HOOK), stage.topic);
        producer.setRetryTimesWhenSendFailed(0);
        producer.setCompressMsgBodyOverHowmuch(LARGER_THAN_ALLOWED * 2);
        producer.start();
        stage.atEnd(producer::shutdown);
        byte[] body = new byte[LARGER_THAN_ALLOWED];
        new Random(1).nextBytes(body);
        try {
            producer.send(new Message(stage.topic, body));
        } catch (MQClientException e) {
            stage.facts.put("refused_by_client", e.getResponseCode());
        }
        producer.setMaxMessageSize(LARGER_THAN_ALLOWED * 2);
        try {
            producer.send(new Message(stage.topic, body));
        } catch (MQBrokerException e) {
            stage.facts.put("refused_by_broker", e.getResponseCode());
        }
        SendStatus next = producer.send(stage.message(null, null, "next")).getSendStatus();
        stage.facts.put("next", next);
        stage.facts.put("received", sorted(stage.receive(1)));
    }

    static void unicode(Stage stage) throws Exception {
        String text = "\u65e5\u672c\u8a9e \u2713 \uD83D\uDE42 \u0000";
        String keys = "schl\u00fcssel \u043a\u043b\u044e\u0447";
        String name = "\u0446\u0432\u0435\u0442";
        Message message = stage.message("Gr\u00f6\u00dfe", keys, text);
        message.putUserProperty("farbe", "gr\u00fcn \u2713 \uD83D\uDE42");
        message.putUserProperty(name, "\u0437\u0435\u043b\u0451\u043d\u044b\u0439");
        stage.producer().send(message);
        stage.facts.put("received", Stage.each(stage.receive(1), got -> List.of(Stage.body(got),
            got.getTags(), got.getKeys(), got.getProperty("farbe"), got.getProperty(name))));
    }

    static void compressed(Stage stage) throws Exception {
        String body = IntStream.range(0, 20_000).mapToObj(number -> "line " + number % 10)
            .collect(Collectors.joining("\n"));
        stage.producer().send(stage.message(null, null, body));
        MessageExt got = stage.receive(1).get(0);
        stage.facts.put("same", Stage.body(got).equals(body));
        stage.facts.put("length", got.getBody().length);
        stage.facts.put("stored_smaller", got.getStoreSize() < body.length() / 10);
    }

    /** The client makes batches of what is sent at one time; only that of 5.x can. */
    static void autoBatched(Stage stage) throws Exception {
        DefaultMQProducer producer = stage.prepare(new DefaultMQProducer(stage.topic, Stage.HOOK), stage.topic);
        DefaultMQProducer.class.getMethod("setAutoBatch", boolean.class).invoke(producer, true);
        producer.start();
        stage.atEnd(producer::shutdown);
        sendAsync(stage, producer);
        List<MessageExt> got = stage.receive(10);
        stage.facts.put("received", sorted(got));
        stage.facts.put("ids_stored", got.stream().map(MessageExt::getMsgId).distinct().count());
    }

    /** By the broker's second port, two below the first. */
    static void vip(Stage stage) throws Exception {
        DefaultMQProducer producer = stage.prepare(new DefaultMQProducer(stage.topic, Stage.HOOK), stage.topic);
        producer.setVipChannelEnabled(true);
        producer.start();
        stage.atEnd(producer::shutdown);
        stage.facts.put("status", producer.send(stage.message(null, null, "vip")).getSendStatus());
        stage.facts.put("received", sorted(stage.receive(1)));
    }

    static List<String> sorted(List<MessageExt> messages) {
        return messages.stream().map(Stage::body).sorted().toList();
    }
}
