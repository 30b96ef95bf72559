import java.util.concurrent.CountDownLatch;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A push consumer with Java's default options, which prints the broker of each message.
 *
 * java Frozen NAMESRV GROUP TOPIC plain|ordered
 *
 * It prints "opening", then "message BROKER QUEUE OFFSET" for each message. At the first line on stdin it is shut
 * down, and prints "closed MILLISECONDS".
 */
public final class Frozen {
    public static void main(String[] args) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[1]);
        consumer.setNamesrvAddr(args[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(args[2], "*");
        if ("ordered".equals(args[3])) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                messages.forEach(Frozen::report);
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                messages.forEach(Frozen::report);
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        say("opening");
        CountDownLatch started = new CountDownLatch(1);
        Thread opener = new Thread(() -> {
            try {
                consumer.start();
            } catch (Exception error) {
                say("error " + error);
            }
            started.countDown();
        });
        opener.start();
        System.in.read();
        started.await();
        long begin = System.nanoTime();
        consumer.shutdown();
        say("closed " + (System.nanoTime() - begin) / 1_000_000);
        Runtime.getRuntime().halt(0);
    }

    private static void report(MessageExt message) {
        say("message " + message.getBrokerName() + " " + message.getQueueId() + " "
            + message.getQueueOffset());
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
