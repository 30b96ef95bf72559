import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/**
 * One workload of bench/client.py by the official client.
 *
 * Arguments: the name server's HOST:PORT, a topic, the workload. Lines of standard input and
 * results are those of client_peer.py.
 */
public final class ClientBench {
    private static final int BODY_SIZE = 128;
    private static final int IN_FLIGHT = 256;
    private static final int BATCH = 32;
    private static final AtomicLong DONE = new AtomicLong();

    private ClientBench() {
    }

    public static void main(String[] args) throws Exception {
        String topic = args[1];
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        boolean consumes = args[2].equals("consume");
        Step step = consumes ? null : step(producer(args[0]), topic, args[2]);
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] window = line.split(" ");
            if (consumes) {
                consume(args[0], topic, Long.parseLong(window[1]));
            } else {
                long done = DONE.get();
                long cpu = cpuNs();
                long start = System.nanoTime();
                run(step, (long) (Double.parseDouble(window[0]) * 1e9));
                say(DONE.get() - done, System.nanoTime() - start, cpuNs() - cpu);
            }
        }
        Runtime.getRuntime().halt(0);
    }

    private static DefaultMQProducer producer(String namesrv) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("bench");
        producer.setNamesrvAddr(namesrv);
        producer.setRetryTimesWhenSendAsyncFailed(0);
        producer.start();
        return producer;
    }

    private interface Step {
        void run() throws Exception;
    }

    private static void run(Step step, long ns) throws Exception {
        long end = System.nanoTime() + ns;
        while (System.nanoTime() < end) {
            step.run();
        }
    }

    private static Step step(DefaultMQProducer producer, String topic, String workload) {
        byte[] body = new byte[BODY_SIZE];
        if (workload.equals("awaited")) {
            return () -> {
                producer.send(new Message(topic, body));
                DONE.incrementAndGet();
            };
        }
        if (workload.equals("batch")) {
            return () -> {
                List<Message> batch = new ArrayList<>();
                for (int number = 0; number < BATCH; number++) {
                    batch.add(new Message(topic, body));
                }
                producer.send(batch);
                DONE.addAndGet(BATCH);
            };
        }
        Semaphore room = new Semaphore(IN_FLIGHT);
        return () -> {
            room.acquire();
            producer.send(new Message(topic, body), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    DONE.incrementAndGet();
                    room.release();
                }

                @Override
                public void onException(Throwable e) {
                    room.release();
                }
            });
        };
    }

    private static void consume(String namesrv, String topic, long count) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("bench_" + System.nanoTime());
        consumer.setNamesrvAddr(namesrv);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        Semaphore done = new Semaphore(0);
        AtomicLong start = new AtomicLong();
        AtomicLong cpu = new AtomicLong();
        DONE.set(0);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            if (start.compareAndSet(0, System.nanoTime())) {
                cpu.set(cpuNs());
            }
            if (DONE.addAndGet(messages.size()) >= count) {
                done.release();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        done.acquire();
        say(DONE.get(), System.nanoTime() - start.get(), cpuNs() - cpu.get());
        consumer.shutdown();
    }

    private static long cpuNs() {
        return ((OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean())
            .getProcessCpuTime();
    }

    private static void say(long count, long ns, long cpu) {
        System.out.println("{\"per_s\": " + count * 1e9 / ns + ", \"cpu_us\": " + cpu / 1e3 / count + "}");
        System.out.flush();
    }
}
