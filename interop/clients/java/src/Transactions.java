import java.nio.charset.StandardCharsets;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Transactions as users of the official client have them.
 *
 * Arguments: the name server's HOST:PORT. Prints one line for what is seen:
 *
 * sent BODY SEND_STATUS STATE IS_SAME_ID   IS_SAME_ID: the transaction id is the unique key
 * checked BODY TIMES KEYS TOPIC            the broker asks; "asks" answers unknown once, then commits
 * received BODY
 */
public final class Transactions {
    private static final long PAUSE_NS = TimeUnit.MILLISECONDS.toNanos(200);
    private static final int TRIES_MAX = 100;
    private static final String TOPIC = "Transactions";

    private Transactions() {
    }

    public static void main(String[] args) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer("transaction_producer");
        producer.setNamesrvAddr(args[0]);
        producer.setTransactionListener(new Listener());
        producer.start();
        for (String body : new String[] {"commits", "rolls-back", "asks", "asks-rolls-back", "fails"}) {
            send(producer, new Message(TOPIC, "a", "key-" + body, body.getBytes(StandardCharsets.UTF_8)));
        }
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("transaction_consumer");
        consumer.setNamesrvAddr(args[0]);
        consumer.setInstanceName("consumer");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(TOPIC, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                say("received " + text(message));
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        say("started");
        LockSupport.parkNanos(TimeUnit.MINUTES.toNanos(10));
    }

    private static String text(Message message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    private static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    private static void send(TransactionMQProducer producer, Message message) throws Exception {
        for (int tries = 1; ; tries++) {
            try {
                TransactionSendResult result = producer.sendMessageInTransaction(message, null);
                boolean same = result.getMsgId().equals(result.getTransactionId());
                say("sent " + text(message) + " " + result.getSendStatus() + " "
                    + result.getLocalTransactionState() + " " + same);
                return;
            } catch (MQClientException e) {
                // The first send may come before the name server knows TBW102.
                if (tries == TRIES_MAX) {
                    throw e;
                }
                LockSupport.parkNanos(PAUSE_NS);
            }
        }
    }

    private static final class Listener implements TransactionListener {
        private final ConcurrentHashMap<String, Integer> asked = new ConcurrentHashMap<>();

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            switch (text(message)) {
                case "commits":
                    return LocalTransactionState.COMMIT_MESSAGE;
                case "rolls-back":
                    return LocalTransactionState.ROLLBACK_MESSAGE;
                case "fails":
                    throw new IllegalStateException("the local transaction fails");
                default:
                    return LocalTransactionState.UNKNOW;
            }
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            String body = text(message);
            int times = asked.merge(body, 1, Integer::sum);
            say("checked " + body + " " + times + " " + message.getKeys() + " " + message.getTopic());
            if (body.equals("asks") && times > 1) {
                return LocalTransactionState.COMMIT_MESSAGE;
            }
            return body.equals("asks") ? LocalTransactionState.UNKNOW
                : LocalTransactionState.ROLLBACK_MESSAGE;
        }
    }
}
