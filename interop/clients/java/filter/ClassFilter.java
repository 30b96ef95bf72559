import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Push consumers with a class filter, as users of the official client have them; for all versions
 * from 4.2.0 on. Controlled by lines on stdin with words separated by tabs:
 *
 * consume ID NAMESRV GROUP TOPIC CLASS FILE INTERVAL-MS
 *     FILE holds the class's source. INTERVAL-MS: between two looks at the name server, two
 *     heartbeats (and uploads) and two commits; 0 for what the client has: 30 s, 30 s, 5 s
 * stop ID
 *
 * Prints: hello, consuming ID, got ID BODY, stopped ID, error ID TEXT.
 */
public final class ClassFilter {
    private static final PrintStream OUT = System.out;
    private static final Map<String, DefaultMQPushConsumer> CONSUMERS = new ConcurrentHashMap<>();

    private ClassFilter() {
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        say("hello");
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split("\t");
            // Each takes seconds, and several start at once.
            new Thread(() -> run(words), "command-" + words[1]).start();
        }
        Runtime.getRuntime().halt(0);
    }

    private static void run(String[] words) {
        String id = words[1];
        try {
            if ("consume".equals(words[0])) {
                consume(id, words);
                say("consuming " + id);
            } else {
                CONSUMERS.remove(id).shutdown();
                say("stopped " + id);
            }
        } catch (Exception e) {
            say("error " + id + " " + e.toString().replace('\n', ' '));
        }
    }

    private static synchronized void say(String line) {
        OUT.println(line);
        OUT.flush();
    }

    // The 5.x clients call this way of subscribing deprecated, and have it.
    @SuppressWarnings("deprecation")
    private static void consume(String id, String[] words) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(words[3]);
        consumer.setNamesrvAddr(words[2]);
        consumer.setInstanceName(id);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(4);
        consumer.setConsumeThreadMax(4);
        int interval = Integer.parseInt(words[7]);
        if (interval > 0) {
            consumer.setPollNameServerInterval(interval);
            consumer.setHeartbeatBrokerInterval(interval);
            consumer.setPersistConsumerOffsetInterval(interval);
        }
        String source =
            new String(Files.readAllBytes(Paths.get(words[6])), StandardCharsets.UTF_8);
        consumer.subscribe(words[4], words[5], source);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                say("got " + id + " " + new String(message.getBody(), StandardCharsets.UTF_8));
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        CONSUMERS.put(id, consumer);
        consumer.start();
    }
}
