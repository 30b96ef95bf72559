import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import java.util.zip.CRC32;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Official producers and push consumers, driven by one flat JSON object per line on stdin and
 * reporting one per line on stdout. One process holds any number of them, each under its "id".
 *
 * Commands: {"op":"create_topic","id","addr","namesrv","topic","queues"}
 *           {"op":"send","id","namesrv","group","topic","mode":"sync|async|oneway|batch","count",
 *            "threads","batch","size","keys","tags":"A,B","rate","deadline_s"}
 *           {"op":"consume","id","namesrv","group","topic","expression","threads","cached",
 *            "hold_after"}
 *           {"op":"resume","id"}   {"op":"stop","id"}   {"op":"quit"}
 * Events:   created, sending, ack, sent (oneway), retry, done, consuming, message, stopped, error.
 *
 * A send that fails is tried again, as a new message with the same body key, until it is
 * acknowledged with SEND_OK or deadline_s has passed: only acknowledged ones are reported as "ack".
 * A consumer with "hold_after" blocks after this many messages until "resume"; by then it has pulled
 * at most "cached" messages of each queue, and those of one pull.
 */
public final class Peer {
    private static final PrintStream OUT = System.out;
    private static final Map<String, DefaultMQPushConsumer> CONSUMERS = new ConcurrentHashMap<>();
    private static final Map<String, CountDownLatch> GATES = new ConcurrentHashMap<>();
    private static final int FAST_MS = 1000;
    private static final long RETRY_PAUSE_NS = TimeUnit.MILLISECONDS.toNanos(100);
    private static final int ASYNC_IN_FLIGHT_MAX = 64;

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        emit("event", "hello");
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            Map<String, String> command = Flat.parse(line);
            if ("quit".equals(command.get("op"))) {
                break;
            }
            new Thread(() -> run(command), "command-" + command.get("id")).start();
        }
        for (DefaultMQPushConsumer consumer : CONSUMERS.values()) {
            consumer.shutdown();
        }
        OUT.flush();
        Runtime.getRuntime().halt(0);
    }

    private static void run(Map<String, String> command) {
        String id = command.get("id");
        try {
            switch (command.get("op")) {
                case "create_topic": createTopic(id, command); break;
                case "send": new Sender(id, command).run(); break;
                case "consume": consume(id, command); break;
                case "resume": GATES.get(id).countDown(); break;
                case "stop": stop(id); break;
                default: emit("event", "error", "id", id, "error", "unknown op");
            }
        } catch (Throwable e) {
            emit("event", "error", "id", id, "error", String.valueOf(e));
        }
    }

    static synchronized void emit(Object... pairs) {
        StringBuilder line = new StringBuilder("{");
        for (int i = 0; i < pairs.length; i += 2) {
            line.append(i == 0 ? "" : ",");
            Flat.quote(line, String.valueOf(pairs[i])).append(':');
            if (pairs[i + 1] instanceof Number) {
                line.append(pairs[i + 1]);
            } else {
                Flat.quote(line, String.valueOf(pairs[i + 1]));
            }
        }
        OUT.println(line.append('}'));
    }

    static long crc(byte[] data) {
        CRC32 crc = new CRC32();
        crc.update(data);
        return crc.getValue();
    }

    private static DefaultMQProducer producer(String id, Map<String, String> command) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(command.getOrDefault("group", "peer_admin"));
        producer.setNamesrvAddr(command.get("namesrv"));
        producer.setInstanceName("peer-" + id);
        producer.setPollNameServerInterval(FAST_MS);
        producer.setHeartbeatBrokerInterval(FAST_MS);
        producer.setRetryTimesWhenSendFailed(0);
        producer.setRetryTimesWhenSendAsyncFailed(0);
        producer.start();
        return producer;
    }

    private static void createTopic(String id, Map<String, String> command) throws Exception {
        DefaultMQProducer producer = producer(id, command);
        int queues = Integer.parseInt(command.get("queues"));
        TopicConfig config = new TopicConfig(command.get("topic"), queues, queues, 6);
        producer.getDefaultMQProducerImpl().getMqClientFactory().getMQClientAPIImpl()
            .createTopic(command.get("addr"), "TBW102", config, 5000);
        producer.shutdown();
        emit("event", "created", "id", id, "topic", command.get("topic"));
    }

    private static void consume(String id, Map<String, String> command) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(command.get("group"));
        consumer.setNamesrvAddr(command.get("namesrv"));
        consumer.setInstanceName("peer-" + id);
        consumer.setPollNameServerInterval(FAST_MS);
        consumer.setHeartbeatBrokerInterval(FAST_MS);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        int threads = Integer.parseInt(command.getOrDefault("threads", "4"));
        consumer.setConsumeThreadMin(threads);
        consumer.setConsumeThreadMax(threads);
        for (String topic : command.get("topic").split(",")) {
            consumer.subscribe(topic, command.getOrDefault("expression", "*"));
        }
        int cached = Integer.parseInt(command.getOrDefault("cached", "0"));
        if (cached > 0) {
            consumer.setPullThresholdForQueue(cached);
        }
        int holdAfter = Integer.parseInt(command.getOrDefault("hold_after", "0"));
        CountDownLatch gate = new CountDownLatch(holdAfter > 0 ? 1 : 0);
        GATES.put(id, gate);
        AtomicInteger taken = new AtomicInteger();
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                if (taken.incrementAndGet() > holdAfter) {
                    pass(gate);
                }
                report(id, message);
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        CONSUMERS.put(id, consumer);
        emit("event", "consuming", "id", id);
    }

    private static void pass(CountDownLatch gate) {
        try {
            gate.await();
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    private static void report(String id, MessageExt message) {
        byte[] body = message.getBody();
        String text = new String(body, StandardCharsets.UTF_8);
        int end = text.indexOf('|');
        emit("event", "message", "id", id, "topic", message.getTopic(),
            "key", end < 0 ? text : text.substring(0, end), "crc", crc(body),
            "unique", message.getMsgId(), "queueId", message.getQueueId(),
            "queueOffset", message.getQueueOffset(), "tags", String.valueOf(message.getTags()),
            "keys", String.valueOf(message.getKeys()), "reconsume", message.getReconsumeTimes());
    }

    private static void stop(String id) {
        DefaultMQPushConsumer consumer = CONSUMERS.remove(id);
        if (consumer != null) {
            consumer.shutdown();
        }
        emit("event", "stopped", "id", id);
    }

    /** Sends `count` messages in one mode; a message's body is "ID-NUMBER|" and filler. */
    private static final class Sender {
        private final String id;
        private final String topic;
        private final String mode;
        private final int count;
        private final int threads;
        private final int batch;
        private final int size;
        private final boolean keys;
        private final String[] tags;
        private final double rate;
        private final long startNs = System.nanoTime();
        private final long deadlineNs;
        private final DefaultMQProducer producer;
        private final AtomicInteger next = new AtomicInteger();
        private final ConcurrentLinkedQueue<Integer> again = new ConcurrentLinkedQueue<>();
        private final AtomicInteger finished = new AtomicInteger();
        private final AtomicLong attempts = new AtomicLong();
        private final AtomicLong failures = new AtomicLong();
        private volatile long pauseUntilNs = startNs;

        Sender(String id, Map<String, String> command) throws Exception {
            this.id = id;
            topic = command.get("topic");
            mode = command.get("mode");
            count = Integer.parseInt(command.get("count"));
            threads = Integer.parseInt(command.getOrDefault("threads", "1"));
            batch = "batch".equals(mode) ? Integer.parseInt(command.getOrDefault("batch", "32")) : 1;
            size = Integer.parseInt(command.getOrDefault("size", "128"));
            keys = Boolean.parseBoolean(command.get("keys"));
            tags = command.getOrDefault("tags", "").split(",");
            rate = Double.parseDouble(command.getOrDefault("rate", "0"));
            long deadline = Long.parseLong(command.getOrDefault("deadline_s", "120"));
            deadlineNs = startNs + TimeUnit.SECONDS.toNanos(deadline);
            producer = producer(id, command);
        }

        void run() throws Exception {
            emit("event", "sending", "id", id);
            List<Thread> workers = new ArrayList<>();
            for (int i = 0; i < threads; i++) {
                Thread worker = new Thread("async".equals(mode) ? this::sendAsync : this::sendInTurn);
                workers.add(worker);
                worker.start();
            }
            for (Thread worker : workers) {
                worker.join();
            }
            if ("oneway".equals(mode)) {
                flushOneways();
            }
            emit("event", "done", "id", id, "finished", finished.get(), "attempts", attempts.get(),
                "failures", failures.get());
            producer.shutdown();
        }

        /** One answered request on the same connection: what was sent before it has left. */
        private void flushOneways() {
            while (inTime()) {
                try {
                    producer.maxOffset(producer.fetchPublishMessageQueues(topic).get(0));
                    return;
                } catch (Exception e) {
                    LockSupport.parkNanos(RETRY_PAUSE_NS);
                }
            }
        }

        private boolean inTime() {
            return System.nanoTime() < deadlineNs;
        }

        /** The first number of the next block of `batch` messages, or null when none is left. */
        private Integer take() {
            Integer number = again.poll();
            if (number == null) {
                int fresh = next.getAndAdd(batch);
                number = fresh < count ? Integer.valueOf(fresh) : null;
                if (number != null && rate > 0) {
                    pauseUntil(startNs + (long) (number / rate * 1e9));
                }
            }
            return number;
        }

        private static void pauseUntil(long ns) {
            for (long rest = ns - System.nanoTime(); rest > 0; rest = ns - System.nanoTime()) {
                LockSupport.parkNanos(rest);
            }
        }

        private List<Message> block(int first) {
            List<Message> messages = new ArrayList<>();
            for (int number = first; number < Math.min(first + batch, count); number++) {
                messages.add(message(number));
            }
            return messages;
        }

        private Message message(int number) {
            String key = id + "-" + number;
            StringBuilder text = new StringBuilder(key).append('|');
            while (text.length() < size) {
                text.append((char) ('a' + (number + text.length()) % 26));
            }
            String tag = tags[number % tags.length];
            Message message = new Message(topic, tag.isEmpty() ? null : tag,
                text.toString().getBytes(StandardCharsets.UTF_8));
            if (keys) {
                message.setKeys(key);
            }
            return message;
        }

        private void sendInTurn() {
            for (Integer number = take(); number != null && inTime(); number = take()) {
                boolean sent = false;
                while (!sent && inTime()) {
                    sent = attempt(block(number));
                    if (!sent) {
                        LockSupport.parkNanos(RETRY_PAUSE_NS);
                    }
                }
            }
        }

        private boolean attempt(List<Message> messages) {
            attempts.incrementAndGet();
            try {
                if ("oneway".equals(mode)) {
                    producer.sendOneway(messages.get(0));
                    sent(messages.get(0));
                    return true;
                }
                SendResult result = "batch".equals(mode) ? producer.send(messages)
                    : producer.send(messages.get(0));
                return acknowledged(messages, result);
            } catch (Exception e) {
                failed(messages, e.toString());
                return false;
            }
        }

        private void sendAsync() {
            Semaphore inFlight = new Semaphore(ASYNC_IN_FLIGHT_MAX);
            while (finished.get() < count && inTime()) {
                pauseUntil(pauseUntilNs);
                Integer number = take();
                if (number == null || !acquire(inFlight)) {
                    if (number != null) {
                        again.add(number);
                    }
                    LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(1));
                    continue;
                }
                List<Message> messages = block(number);
                attempts.incrementAndGet();
                try {
                    producer.send(messages.get(0), new SendCallback() {
                        @Override
                        public void onSuccess(SendResult result) {
                            if (!acknowledged(messages, result)) {
                                again.add(number);
                            }
                            inFlight.release();
                        }

                        @Override
                        public void onException(Throwable e) {
                            failed(messages, e.toString());
                            again.add(number);
                            inFlight.release();
                        }
                    });
                } catch (Exception e) {
                    failed(messages, e.toString());
                    again.add(number);
                    inFlight.release();
                }
            }
        }

        private static boolean acquire(Semaphore semaphore) {
            try {
                return semaphore.tryAcquire(100, TimeUnit.MILLISECONDS);
            } catch (InterruptedException e) {
                return false;
            }
        }

        private boolean acknowledged(List<Message> messages, SendResult result) {
            if (result.getSendStatus() != SendStatus.SEND_OK) {
                failed(messages, result.getSendStatus().toString());
                return false;
            }
            // One for each message, or, from a topic of batches, one for the whole batch.
            String[] unique = result.getMsgId().split(",");
            String[] stored = result.getOffsetMsgId().split(",");
            for (int i = 0; i < messages.size(); i++) {
                emit("event", "ack", "id", id, "topic", topic, "key", key(messages.get(i)),
                    "crc", crc(messages.get(i).getBody()), "unique", unique[Math.min(i, unique.length - 1)],
                    "msgId", i < stored.length ? stored[i] : "",
                    "queueId", result.getMessageQueue().getQueueId(),
                    "queueOffset", result.getQueueOffset() + i,
                    "tags", String.valueOf(messages.get(i).getTags()));
            }
            finished.addAndGet(messages.size());
            return true;
        }

        private void sent(Message message) {
            emit("event", "sent", "id", id, "topic", topic, "key", key(message),
                "crc", crc(message.getBody()), "unique", String.valueOf(message.getProperty("UNIQ_KEY")),
                "tags", String.valueOf(message.getTags()));
            finished.incrementAndGet();
        }

        private void failed(List<Message> messages, String error) {
            failures.incrementAndGet();
            pauseUntilNs = System.nanoTime() + RETRY_PAUSE_NS;
            emit("event", "retry", "id", id, "key", key(messages.get(0)), "error", error);
        }

        private static String key(Message message) {
            String text = new String(message.getBody(), StandardCharsets.UTF_8);
            return text.substring(0, text.indexOf('|'));
        }
    }

    /** Flat JSON objects: no nesting, values become text. The jars' JSON libraries differ by version. */
    private static final class Flat {
        static Map<String, String> parse(String line) {
            Map<String, String> map = new HashMap<>();
            int[] at = {line.indexOf('{') + 1};
            while (at[0] > 0 && line.indexOf('"', at[0]) >= 0) {
                at[0] = line.indexOf('"', at[0]);
                String key = text(line, at);
                at[0] = line.indexOf(':', at[0]) + 1;
                while (line.charAt(at[0]) == ' ') {
                    at[0]++;
                }
                map.put(key, line.charAt(at[0]) == '"' ? text(line, at) : bare(line, at));
            }
            return map;
        }

        private static String bare(String line, int[] at) {
            int start = at[0];
            while (line.charAt(at[0]) != ',' && line.charAt(at[0]) != '}') {
                at[0]++;
            }
            return line.substring(start, at[0]).trim();
        }

        private static String text(String line, int[] at) {
            StringBuilder text = new StringBuilder();
            for (at[0]++; line.charAt(at[0]) != '"'; at[0]++) {
                char c = line.charAt(at[0]);
                if (c == '\\') {
                    c = line.charAt(++at[0]);
                    if (c == 'u') {
                        c = (char) Integer.parseInt(line.substring(at[0] + 1, at[0] + 5), 16);
                        at[0] += 4;
                    } else if (c == 'n') {
                        c = '\n';
                    } else if (c == 't') {
                        c = '\t';
                    }
                }
                text.append(c);
            }
            at[0]++;
            return text.toString();
        }

        static StringBuilder quote(StringBuilder line, String text) {
            line.append('"');
            for (char c : text.toCharArray()) {
                if (c == '"' || c == '\\') {
                    line.append('\\').append(c);
                } else if (c < 0x20) {
                    line.append(String.format("\\u%04x", (int) c));
                } else {
                    line.append(c);
                }
            }
            return line.append('"');
        }
    }
}
