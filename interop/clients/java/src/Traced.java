import java.nio.charset.StandardCharsets;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/**
 * A consumer and a producer with message traces, for what administrators ask of a live client.
 *
 * Arguments: the name server's HOST:PORT, the topic, the group, and the IP address that the client's
 * id begins with (its end is "traced"). Sends one message and consumes what is in the topic. Prints:
 *
 * sent ID     the unique id of the message that was sent
 * got ID      a message that was consumed
 *
 * It runs until it is killed.
 */
public final class Traced {
    private static final String INSTANCE = "traced";
    private static final String TRACES = "RMQ_SYS_TRACE_TOPIC";

    private Traced() {
    }

    public static void main(String[] args) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[2], true, TRACES);
        consumer.setNamesrvAddr(args[0]);
        consumer.setClientIP(args[3]);
        consumer.setInstanceName(INSTANCE);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(args[1], "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> say("got " + message.getMsgId()));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        DefaultMQProducer producer =
            new DefaultMQProducer(args[2] + "_producer", true, TRACES);
        producer.setNamesrvAddr(args[0]);
        producer.setClientIP(args[3]);
        producer.setInstanceName(INSTANCE);
        producer.start();
        byte[] body = "traced".getBytes(StandardCharsets.UTF_8);
        SendResult sent = producer.send(new Message(args[1], "TagT", "traced-key", body));
        say("sent " + sent.getMsgId());
        LockSupport.parkNanos(TimeUnit.MINUTES.toNanos(30));
    }

    private static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
