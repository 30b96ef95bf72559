import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentSkipListMap;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Scenarios: transactions that commit, roll back, or are checked by the broker. */
final class TransactionScenario implements TransactionListener {
    private final Map<String, Integer> asked = new ConcurrentSkipListMap<>();

    private TransactionScenario() {
    }

    static void play(Stage stage) throws Exception {
        TransactionScenario listener = new TransactionScenario();
        TransactionMQProducer producer =
            stage.prepare(new TransactionMQProducer(stage.topic, Stage.HOOK), stage.topic);
        producer.setTransactionListener(listener);
        producer.start();
        stage.atEnd(producer::shutdown);
        Map<String, Object> sent = new TreeMap<>();
        for (String body : new String[] {"rolls-back", "asks-rolls-back", "asks", "commits"}) {
            Message message = stage.message("Tag", "key-" + body, body);
            TransactionSendResult result = producer.sendMessageInTransaction(message, null);
            sent.put(body, List.of(result.getSendStatus(), result.getLocalTransactionState()));
        }
        Inbox<MessageExt> inbox = stage.inbox("*");
        // The last check has happened, so the others have, too.
        List<MessageExt> got = inbox.await(all -> all.size() >= 2 && listener.asked.size() >= 2);
        stage.facts.put("sent", sent);
        stage.facts.put("asked", listener.asked);
        stage.facts.put("received", got.stream()
            .map(message -> Stage.body(message) + " " + message.getKeys()).sorted().toList());
    }

    @Override
    public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
        return switch (Stage.body(message)) {
            case "commits" -> LocalTransactionState.COMMIT_MESSAGE;
            case "rolls-back" -> LocalTransactionState.ROLLBACK_MESSAGE;
            default -> LocalTransactionState.UNKNOW;
        };
    }

    @Override
    public LocalTransactionState checkLocalTransaction(MessageExt message) {
        asked.merge(Stage.body(message), 1, Integer::sum);
        return Stage.body(message).equals("asks") ? LocalTransactionState.COMMIT_MESSAGE
            : LocalTransactionState.ROLLBACK_MESSAGE;
    }
}
