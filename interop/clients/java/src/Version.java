import java.util.Map;
import java.util.function.BooleanSupplier;
import java.util.function.Consumer;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Differences between the versions of the client: for those since 4.6. */
final class Version {
    private Version() {
    }

    /** Add the scenarios that not all versions have. */
    static void addFeatures(Map<String, Features.Feature> all) {
        all.put("send_namespace", NamespaceScenario::play);
        all.put("send_auto_batched", SendScenarios::autoBatched);
        all.put("pull_subscribed", LitePullScenarios::subscribed);
        all.put("pull_assigned", LitePullScenarios::assigned);
        all.put("pop_concurrent", PopScenarios::concurrent);
        all.put("pop_tags", PopScenarios::tags);
        all.put("pop_later", PopScenarios::later);
        all.put("pop_taken_over", PopScenarios::takenOver);
        all.put("pop_together", PopScenarios::together);
        all.put("pop_shared", PopScenarios::shared);
        all.put("pop_switched", PopScenarios::switched);
        all.put("later_timer", LaterScenarios::timer);
        all.put("later_recall", LaterScenarios::recall);
        all.put("transaction", TransactionScenario::play);
        all.put("query", AskScenarios::query);
        all.put("request_reply", AskScenarios::requestReply);
        all.put("request_unanswered", AskScenarios::requestUnanswered);
        all.put("trace", AskScenarios::trace);
    }

    /** Look a topic's route up now. */
    static void lookUp(DefaultMQProducer producer, String topic) {
        producer.getDefaultMQProducerImpl().getMqClientFactory()
            .updateTopicRouteInfoFromNameServer(topic);
    }

    /** Else what a listener has at a shutdown is interrupted, and counts as not consumed. */
    static void finishWhenShutDown(DefaultMQPushConsumer consumer) {
        consumer.setAwaitTerminationMillisWhenShutdown(10_000);
    }

    static Through.TransactionSender transactions(Stage stage) throws Exception {
        TransactionMQProducer producer =
            stage.prepare(new TransactionMQProducer(stage.topic, Stage.HOOK), stage.topic);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return Through.isAskedAbout(Through.key(message)) ? LocalTransactionState.UNKNOW
                    : fate(message);
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return fate(message);
            }
        });
        producer.start();
        stage.atEnd(producer::shutdown);
        return message -> {
            SendStatus status = producer.sendMessageInTransaction(message, null).getSendStatus();
            if (status != SendStatus.SEND_OK) {
                throw new MQClientException("the half message: " + status, null);
            }
        };
    }

    private static LocalTransactionState fate(Message message) {
        return Through.isCommitted(Through.key(message)) ? LocalTransactionState.COMMIT_MESSAGE
            : LocalTransactionState.ROLLBACK_MESSAGE;
    }

    /** A consumer that pops. */
    static DefaultMQPushConsumer popConsumer(Stage stage, long invisibleMs) throws Exception {
        PopScenarios.setMode(stage, "POP", 0);
        return PopScenarios.consumer(stage, "", invisibleMs);
    }

    /** Poll in a thread until it is over. */
    static void poll(Stage stage, Consumer<MessageExt> take, BooleanSupplier over)
        throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(stage.topic, Stage.HOOK);
        consumer.setNamesrvAddr(stage.namesrv);
        consumer.setInstanceName(stage.topic);
        consumer.setPullThreadNums(2);
        consumer.setAutoCommitIntervalMillis(1000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(stage.topic, "*");
        consumer.start();
        Thread poller = new Thread(() -> {
            while (!over.getAsBoolean()) {
                consumer.poll(500).forEach(take);
            }
        }, "poll");
        poller.start();
        stage.atEnd(consumer::shutdown);
        stage.atEnd(poller::join);
    }
}
