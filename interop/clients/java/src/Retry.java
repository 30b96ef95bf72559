import java.nio.charset.StandardCharsets;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Delayed messages, and messages that consumers cannot consume, as users of the official client
 * have them.
 *
 * Arguments: the name server's HOST:PORT. Prints one line for what is seen:
 *
 * delayed LEVEL EARLY BODY            EARLY: it came before its time
 * tried TIMES TOPIC KEYS              a consumer that always fails, two retries of level 1
 * dead TIMES RETRY_TOPIC IS_ORIGIN    what its dead letter topic holds; IS_ORIGIN: of the first id
 * ordered TIMES                       an orderly consumer that always fails, one retry
 * ordered-dead TIMES
 * ordered-next                        the message behind it
 */
public final class Retry {
    private static final long PAUSE_NS = TimeUnit.MILLISECONDS.toNanos(200);
    private static final int TRIES_MAX = 100;
    private static final long[] DELAYS_MS = {0, 1000, 5000, 10000};

    private static String address;
    private static volatile String firstId;

    private Retry() {
    }

    public static void main(String[] args) throws Exception {
        address = args[0];
        DefaultMQProducer producer = new DefaultMQProducer("retry_producer");
        producer.setNamesrvAddr(address);
        producer.start();
        send(producer, new Message("Delayed", "a", "first", bytes("0")));
        firstId = send(producer, new Message("Failing", "a", "key", bytes("fails"))).getOffsetMsgId();
        sendTo(producer, new Message("Ordered", "a", "k", bytes("poison")));
        sendTo(producer, new Message("Ordered", "a", "k", bytes("next")));
        failing();
        ordered();
        dead("%DLQ%failing_group", "dead");
        dead("%DLQ%ordered_group", "ordered-dead");
        delayed(producer);
        System.out.println("started");
        System.out.flush();
        LockSupport.parkNanos(TimeUnit.MINUTES.toNanos(10));
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    private static SendResult send(DefaultMQProducer producer, Message message) throws Exception {
        for (int tries = 1; ; tries++) {
            try {
                SendResult result = producer.send(message);
                if (result.getSendStatus() != SendStatus.SEND_OK) {
                    throw new IllegalStateException(result.toString());
                }
                return result;
            } catch (MQClientException e) {
                // The first send may come before the name server knows TBW102.
                if (tries == TRIES_MAX) {
                    throw e;
                }
                LockSupport.parkNanos(PAUSE_NS);
            }
        }
    }

    private static void sendTo(DefaultMQProducer producer, Message message) throws Exception {
        for (int tries = 1; ; tries++) {
            try {
                producer.send(message, (queues, each, number) -> queues.get(0), 0);
                return;
            } catch (MQClientException e) {
                if (tries == TRIES_MAX) {
                    throw e;
                }
                LockSupport.parkNanos(PAUSE_NS);
            }
        }
    }

    private static DefaultMQPushConsumer consumer(String group, String topic) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(address);
        consumer.setInstanceName(group);
        consumer.setPollNameServerInterval(1000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        return consumer;
    }

    private static void failing() throws Exception {
        DefaultMQPushConsumer consumer = consumer("failing_group", "Failing");
        consumer.setMaxReconsumeTimes(2);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                say("tried " + message.getReconsumeTimes() + " " + message.getTopic() + " "
                    + message.getKeys());
            }
            context.setDelayLevelWhenNextConsume(1);
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        consumer.start();
    }

    private static void ordered() throws Exception {
        DefaultMQPushConsumer consumer = consumer("ordered_group", "Ordered");
        consumer.setMaxReconsumeTimes(1);
        consumer.setConsumeMessageBatchMaxSize(1);
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            MessageExt message = messages.get(0);
            if (new String(message.getBody(), StandardCharsets.UTF_8).equals("next")) {
                say("ordered-next");
                return ConsumeOrderlyStatus.SUCCESS;
            }
            say("ordered " + message.getReconsumeTimes());
            context.setSuspendCurrentQueueTimeMillis(500);
            return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
        });
        consumer.start();
    }

    private static void dead(String topic, String name) throws Exception {
        DefaultMQPushConsumer consumer = consumer(name + "_group", topic);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                String line = name + " " + message.getReconsumeTimes();
                if (name.equals("dead")) {
                    line += " " + message.getProperty("RETRY_TOPIC") + " "
                        + firstId.equals(message.getProperty("ORIGIN_MESSAGE_ID"));
                }
                say(line);
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
    }

    private static void delayed(DefaultMQProducer producer) throws Exception {
        DefaultMQPushConsumer consumer = consumer("delayed_group", "Delayed");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                String body = new String(message.getBody(), StandardCharsets.UTF_8);
                int level = Integer.parseInt(body);
                long took = System.currentTimeMillis() - message.getBornTimestamp();
                say("delayed " + level + " " + (took < DELAYS_MS[level]) + " " + message.getTopic());
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        for (int level = 3; level > 0; level--) {
            Message message = new Message("Delayed", "a", "k" + level, bytes("" + level));
            message.setDelayTimeLevel(level);
            send(producer, message);
        }
    }
}
