import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.MessageExt;

/** Scenario: sending and consuming inside a namespace. */
final class NamespaceScenario {
    private NamespaceScenario() {
    }

    @SuppressWarnings("deprecation")
    static void play(Stage stage) throws Exception {
        DefaultMQProducer producer = stage.prepare(new DefaultMQProducer(stage.topic, Stage.HOOK), stage.topic);
        producer.setNamespace("space");
        producer.start();
        stage.atEnd(producer::shutdown);
        SendResult result = producer.send(stage.message("Tag", "key", "inside"));
        DefaultMQPushConsumer consumer = stage.prepare(Stage.newConsumer(stage.topic), "space");
        consumer.setNamespace("space");
        consumer.subscribe(stage.topic, "*");
        List<MessageExt> got = stage.listen(consumer).await(1);
        stage.facts.put("status", result.getSendStatus());
        stage.facts.put("received", SendScenarios.sorted(got));
        stage.facts.put("topic_without_namespace", got.get(0).getTopic().equals(stage.topic));
    }
}
