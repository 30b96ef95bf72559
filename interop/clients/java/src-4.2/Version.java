import java.util.Map;
import java.util.function.BooleanSupplier;
import java.util.function.Consumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.MessageExt;

/** Differences between the versions of the client: for 4.2.0. */
final class Version {
    private Version() {
    }

    /** It has those that all versions have. */
    static void addFeatures(Map<String, Features.Feature> all) {
    }

    /** Look a topic's route up now. */
    static void lookUp(DefaultMQProducer producer, String topic) {
        producer.getDefaultMQProducerImpl().getmQClientFactory()
            .updateTopicRouteInfoFromNameServer(topic);
    }

    /** It cannot wait. */
    static void finishWhenShutDown(DefaultMQPushConsumer consumer) {
    }

    static Through.TransactionSender transactions(Stage stage) {
        throw new UnsupportedOperationException("4.2.0 has no transactions that are asked about");
    }

    static DefaultMQPushConsumer popConsumer(Stage stage, long invisibleMs) {
        throw new UnsupportedOperationException("4.2.0 has no consumer that pops");
    }

    static void poll(Stage stage, Consumer<MessageExt> take, BooleanSupplier over) {
        throw new UnsupportedOperationException("4.2.0 has no consumer that polls");
    }
}
