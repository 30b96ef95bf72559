import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.exception.RequestTimeoutException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Scenarios: lookups of messages, requests with replies, and traces. */
final class AskScenarios {
    private static final int TRIES_MAX = 300;
    private static final long REQUEST_TIMEOUT_MS = 30_000;

    private AskScenarios() {
    }

    static void query(Stage stage) throws Exception {
        List<SendResult> results = new ArrayList<>();
        for (String keys : new String[] {"one", "one two", "two"}) {
            results.add(stage.producer().send(stage.message("Tag", keys, keys)));
        }
        for (String key : new String[] {"one", "two"}) {
            stage.facts.put("by_key_" + key, found(() -> stage.producer()
                .queryMessage(stage.topic, key, 32, 0, Long.MAX_VALUE).getMessageList()
                .stream().map(Stage::body).sorted().toList(), 2));
        }
        SendResult last = results.get(2);
        stage.facts.put("by_unique_id", found(() -> List.of(
            Stage.body(stage.producer().viewMessage(stage.topic, last.getMsgId()))), 1));
        stage.facts.put("by_offset_id", found(() -> List.of(
            Stage.body(stage.producer().viewMessage(stage.topic, last.getOffsetMsgId()))), 1));
        try {
            stage.producer().queryMessage(stage.topic, "three", 32, 0, Long.MAX_VALUE);
        } catch (MQClientException e) {
            stage.facts.put("unknown_key", e.getResponseCode());
        }
    }

    /** Asks until `count` are found: the index is filled after the send. */
    private static List<String> found(Callable<List<String>> question, int count) throws Exception {
        for (int tries = 0; ; tries++) {
            try {
                List<String> found = question.call();
                if (found.size() >= count || tries == TRIES_MAX) {
                    return found;
                }
            } catch (MQClientException e) {
                if (tries == TRIES_MAX) {
                    throw e;
                }
            }
            Stage.pause();
        }
    }

    static void requestReply(Stage stage) throws Exception {
        answerRequests(stage);
        DefaultMQProducer producer = requester(stage);
        Message reply = producer.request(stage.message("Tag", "key", "sync"), REQUEST_TIMEOUT_MS);
        stage.facts.put("sync", Stage.body(reply));
        Inbox<String> replies = new Inbox<>();
        producer.request(stage.message("Tag", "key", "async"), new RequestCallback() {
            @Override
            public void onSuccess(Message message) {
                replies.put(Stage.body(message));
            }

            @Override
            public void onException(Throwable e) {
                replies.put(e.toString());
            }
        }, REQUEST_TIMEOUT_MS);
        stage.facts.put("async", replies.await(1).get(0));
    }

    static void requestUnanswered(Stage stage) throws Exception {
        try {
            requester(stage).request(stage.message("Tag", "key", "no reply"), 3000);
        } catch (RequestTimeoutException e) {
            stage.facts.put("timed_out", true);
        }
    }

    private static DefaultMQProducer requester(Stage stage) throws Exception {
        DefaultMQProducer producer = stage.prepare(new DefaultMQProducer(stage.topic, Stage.HOOK), stage.topic);
        producer.start();
        stage.atEnd(producer::shutdown);
        return producer;
    }

    private static void answerRequests(Stage stage) throws Exception {
        DefaultMQProducer replier =
            stage.prepare(new DefaultMQProducer(stage.topic + "_replier", Stage.HOOK), stage.topic + "_replier");
        replier.start();
        stage.atEnd(replier::shutdown);
        DefaultMQPushConsumer consumer = stage.consumer();
        consumer.subscribe(stage.topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                try {
                    byte[] body = ("echo " + Stage.body(message)).getBytes(StandardCharsets.UTF_8);
                    sendReply(replier, MessageUtil.createReplyMessage(message, body));
                } catch (Exception e) {
                    stage.facts.put("reply_failed", e.toString());
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        stage.atEnd(consumer::shutdown);
    }

    /** The broker refuses a reply until the requester's heartbeat has come, which may be late. */
    private static void sendReply(DefaultMQProducer replier, Message reply) throws Exception {
        for (int tries = 1; ; tries++) {
            try {
                replier.send(reply);
                return;
            } catch (MQBrokerException e) {
                if (tries == TRIES_MAX) {
                    throw e;
                }
            }
            Stage.pause();
        }
    }

    /** The kinds of the trace records of one message. */
    static void trace(Stage stage) throws Exception {
        DefaultMQProducer producer =
            stage.prepare(new DefaultMQProducer(stage.topic, Stage.HOOK, true, null), stage.topic);
        producer.start();
        stage.atEnd(producer::shutdown);
        DefaultMQPushConsumer consumer =
            stage.prepare(new DefaultMQPushConsumer(stage.topic, Stage.HOOK,
                new AllocateMessageQueueAveragely(), true, null), stage.topic + "_traced");
        consumer.subscribe(stage.topic, "*");
        Inbox<MessageExt> traced = stage.listen(consumer);
        DefaultMQPushConsumer reader =
            stage.prepare(Stage.newConsumer(stage.topic + "_reader"), "scenarios");
        reader.subscribe("RMQ_SYS_TRACE_TOPIC", "*");
        Inbox<MessageExt> records = stage.listen(reader);
        String id = producer.send(stage.message("Tag", "key", "traced")).getMsgId();
        traced.await(1);
        List<MessageExt> all = records.await(some -> kinds(some, id).size() >= 3);
        stage.facts.put("kinds", kinds(all, id));
        stage.facts.put("found_by_id", all.stream()
            .anyMatch(record -> record.getKeys() != null && record.getKeys().contains(id)));
    }

    /** A record begins with its kind; fields end with \1, records with \2. */
    private static TreeSet<String> kinds(List<MessageExt> messages, String id) {
        TreeSet<String> kinds = new TreeSet<>();
        for (MessageExt message : messages) {
            for (String record : Stage.body(message).split("\u0002")) {
                if (record.contains(id)) {
                    kinds.add(record.substring(0, record.indexOf('\u0001')));
                }
            }
        }
        return kinds;
    }
}
