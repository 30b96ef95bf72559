import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Sends numbers in order, or takes them in order, through all faults of a chaos run (bench/chaos.py).
 *
 * java Numbers send NAMESRV TOPIC PAUSE_MS FIRST,FIRST…   the next number of each key, key 0 first
 * java Numbers take NAMESRV GROUP TOPIC,TOPIC…
 *
 * A key's messages go to one queue, and a number is sent until it is confirmed. Bodies are KEY:NUMBER.
 * Prints "ready", "sent KEY NUMBER QUEUE OFFSET", "took TOPIC QUEUE OFFSET KEY:NUMBER" and "failed TEXT". At a
 * line on stdin, or its end, it is shut down and prints "done".
 */
public final class Numbers {
    private static final int POLL_NAME_SERVER_MS = 5_000;
    private static final int RETRY_MS = 50;

    public static void main(String[] args) throws Exception {
        AtomicBoolean isOver = new AtomicBoolean();
        if ("send".equals(args[0])) {
            Thread waiter = new Thread(() -> {
                awaitLine();
                isOver.set(true);
            });
            waiter.setDaemon(true);
            waiter.start();
            send(args, isOver);
        } else {
            take(args);
        }
        Json.say("done");
        Runtime.getRuntime().halt(0);
    }

    private static void awaitLine() {
        try {
            System.in.read();
        } catch (java.io.IOException error) {
            Json.say("failed " + error);
        }
    }

    private static void send(String[] args, AtomicBoolean isOver) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("chaos-java");
        producer.setNamesrvAddr(args[1]);
        producer.setPollNameServerInterval(POLL_NAME_SERVER_MS);
        producer.start();
        Json.say("ready");
        String[] firsts = args[4].split(",");
        long[] numbers = new long[firsts.length];
        for (int key = 0; key < numbers.length; key++) {
            numbers[key] = Long.parseLong(firsts[key]);
        }
        while (!isOver.get()) {
            boolean isRefused = false;
            for (int key = 0; key < numbers.length; key++) {
                if (sendOne(producer, args[2], key, numbers[key])) {
                    numbers[key]++;
                } else {
                    isRefused = true;
                }
            }
            Thread.sleep(isRefused ? RETRY_MS : Long.parseLong(args[3]));
        }
        producer.shutdown();
    }

    private static boolean sendOne(DefaultMQProducer producer, String topic, int key, long number)
        throws InterruptedException {
        try {
            Message message = new Message(topic, (key + ":" + number).getBytes("US-ASCII"));
            SendResult result = producer.send(
                message, (queues, each, of) -> queues.get((Integer) of % queues.size()), key);
            if (result.getSendStatus() == SendStatus.SEND_OK) {
                Json.say("sent " + key + " " + number + " " + result.getMessageQueue().getQueueId() + " "
                    + result.getQueueOffset());
                return true;
            }
            Json.say("failed " + result.getSendStatus());
        } catch (InterruptedException error) {
            throw error;
        } catch (Exception error) {
            Json.say("failed " + String.valueOf(error).replace('\n', ' '));
        }
        return false;
    }

    private static void take(String[] args) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[2]);
        consumer.setNamesrvAddr(args[1]);
        consumer.setPollNameServerInterval(POLL_NAME_SERVER_MS);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        for (String topic : args[3].split(",")) {
            consumer.subscribe(topic, "*");
        }
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            messages.forEach(Numbers::report);
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        Json.say("ready");
        awaitLine();
        consumer.shutdown();
    }

    private static void report(MessageExt message) {
        Json.say("took " + message.getTopic() + " " + message.getQueueId() + " " + message.getQueueOffset()
            + " " + new String(message.getBody()));
    }
}
