import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;

/**
 * Sends, or receives and acknowledges, as fast as the official gRPC client does.
 *
 * Arguments: HOST:PORT of a proxy or a broker, topic, "send" or "receive", calls in flight, bytes of
 * a body. Prints each second what is done so far, {"done": N, "failed": N, "p99_ms": T of the sends of
 * that second}, until it is killed. A receive is one of 32 messages, and an acknowledgement of each.
 */
public final class GrpcLoad {
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    private static final AtomicLong DONE = new AtomicLong();
    private static final AtomicLong FAILED = new AtomicLong();
    private static volatile ConcurrentLinkedQueue<Long> latencies = new ConcurrentLinkedQueue<>();

    private GrpcLoad() {
    }

    public static void main(String[] args) throws Exception {
        ClientConfiguration configuration = ClientConfiguration.newBuilder()
            .setEndpoints(args[0]).enableSsl(false).setRequestTimeout(Duration.ofSeconds(10))
            .build();
        String topic = args[1];
        int inFlight = Integer.parseInt(args[3]);
        Thread load = new Thread(() -> {
            try {
                if (args[2].equals("send")) {
                    send(configuration, topic, inFlight, Integer.parseInt(args[4]));
                } else {
                    receive(configuration, topic, inFlight);
                }
            } catch (Exception e) {
                System.out.println("error " + e);
                Runtime.getRuntime().halt(1);
            }
        });
        load.setDaemon(true);
        load.start();
        while (true) {
            Thread.sleep(1_000);
            System.out.println("{\"done\": " + DONE + ", \"failed\": " + FAILED
                + ", \"p99_ms\": " + p99Ms() + "}");
        }
    }

    private static double p99Ms() {
        ConcurrentLinkedQueue<Long> taken = latencies;
        latencies = new ConcurrentLinkedQueue<>();
        long[] ordered = taken.stream().mapToLong(Long::longValue).sorted().toArray();
        return ordered.length == 0 ? 0 : ordered[(int) (ordered.length * 0.99)] / 1e6;
    }

    private static void send(ClientConfiguration configuration, String topic, int inFlight,
        int size) throws Exception {
        Producer producer = PROVIDER.newProducerBuilder()
            .setClientConfiguration(configuration).setTopics(topic).build();
        byte[] body = "x".repeat(size).getBytes(StandardCharsets.UTF_8);
        Semaphore places = new Semaphore(inFlight);
        while (true) {
            places.acquire();
            long begin = System.nanoTime();
            producer.sendAsync(PROVIDER.newMessageBuilder().setTopic(topic).setBody(body).build())
                .whenComplete((receipt, error) -> {
                    (error == null ? DONE : FAILED).incrementAndGet();
                    latencies.add(System.nanoTime() - begin);
                    places.release();
                });
        }
    }

    private static void receive(ClientConfiguration configuration, String topic, int inFlight)
        throws Exception {
        SimpleConsumer consumer = PROVIDER.newSimpleConsumerBuilder()
            .setClientConfiguration(configuration).setConsumerGroup("load")
            .setAwaitDuration(Duration.ofSeconds(5))
            .setSubscriptionExpressions(new HashMap<>(Map.of(topic, FilterExpression.SUB_ALL)))
            .build();
        Semaphore places = new Semaphore(inFlight);
        while (true) {
            places.acquire();
            consumer.receiveAsync(32, Duration.ofSeconds(60)).whenComplete((found, error) -> {
                places.release();
                if (error != null) {
                    FAILED.incrementAndGet();
                } else {
                    acknowledge(consumer, found);
                }
            });
        }
    }

    private static void acknowledge(SimpleConsumer consumer, List<MessageView> found) {
        for (MessageView message : found) {
            consumer.ackAsync(message).whenComplete(
                (done, error) -> (error == null ? DONE : FAILED).incrementAndGet());
        }
    }
}
