import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/** Scenarios: the refusals of requests by accounts that may not. */
@SuppressWarnings("deprecation")
final class AccountScenarios {
    /** The line of Java that 4.x adds to a text. */
    private static final String JAVA_PLACE = ", [\\w.$]+\\([\\w.]+:\\d+\\)$";

    private AccountScenarios() {
    }

    /** Sends with no account, with wrong ones, and each kind of request without the right. */
    static void refused(Stage stage) throws Exception {
        String account = System.getenv("INTEROP_ACCOUNT");
        Map<String, String> accounts = new LinkedHashMap<>();
        accounts.put("no_account", null);
        accounts.put("unknown", "interop-unknown the-secret-of-unknown");
        accounts.put("other_secret", account + "-other");
        for (Map.Entry<String, String> entry : accounts.entrySet()) {
            DefaultMQProducer producer = producer(stage, entry.getKey(), entry.getValue());
            stage.facts.put(entry.getKey(), refusal(stage, () -> producer.send(message(stage, "refused"))));
        }
        String weak = System.getenv("INTEROP_WEAK_ACCOUNT");
        DefaultMQProducer producer = producer(stage, "weak", weak);
        stage.facts.put("send", refusal(stage, () -> producer.send(message(stage, "refused"))));
        Message delayed = message(stage, "refused");
        delayed.setDelayTimeLevel(1);
        stage.facts.put("delayed", refusal(stage, () -> producer.send(delayed)));
        producer.sendOneway(message(stage, "refused"));
        MessageQueue queue = producer.fetchPublishMessageQueues(stage.topic).get(0);
        DefaultMQPullConsumer consumer =
            new DefaultMQPullConsumer(stage.topic, Signing.of(weak));
        consumer.setNamesrvAddr(stage.namesrv);
        consumer.setInstanceName(stage.topic + "puller");
        consumer.start();
        stage.atEnd(consumer::shutdown);
        stage.facts.put("pull", refusal(stage, () -> consumer.pull(queue, "*", 0, 1)));
        // Of ACL 2.0 only.
        stage.facts.put("end_offset", refusal(stage, () -> consumer.maxOffset(queue)));
        stage.send("last");
        stage.facts.put("received", Stage.each(stage.receive(1), Stage::body));
        // Last, because ACL 1.0 of 4.9.7 lets it pass.
        stage.facts.put("batch", refusal(stage, () ->
            producer.send(List.of(message(stage, "refused"), message(stage, "refused")))));
    }

    private static DefaultMQProducer producer(Stage stage, String name, String account)
        throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(stage.topic, Signing.of(account));
        stage.prepare(producer, stage.topic + name).setRetryTimesWhenSendFailed(0);
        producer.start();
        stage.atEnd(producer::shutdown);
        return producer;
    }

    private static Message message(Stage stage, String body) {
        return new Message(stage.topic, body.getBytes(StandardCharsets.UTF_8));
    }

    /** The broker's code and text, without the place in its code that 4.x adds; "passed". */
    private static Object refusal(Stage stage, Stage.Step step) throws Exception {
        try {
            step.run();
            return "passed";
        } catch (Exception e) {
            for (Throwable cause = e; cause != null; cause = cause.getCause()) {
                if (cause instanceof MQBrokerException) {
                    MQBrokerException refusal = (MQBrokerException) cause;
                    String text = refusal.getErrorMessage().replaceFirst(JAVA_PLACE, "");
                    return List.of(refusal.getResponseCode(),
                        text.replace(stage.topic, "<topic>"));
                }
            }
            throw e;
        }
    }
}
