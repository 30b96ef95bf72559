import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Deque;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.function.Predicate;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientConfigurationBuilder;
import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.StaticSessionCredentialsProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/**
 * Plays scenarios as users of the official gRPC client, all at the same time.
 *
 * Arguments: the HOST:PORT of a proxy or a broker, the prefix of topics and groups, and the scenarios' names.
 * Prints as Scenarios does. interop/scenarios/grpc_table.py has the expected facts, and the
 * settings of topics. No group exists before unless that table says so. The client uses TLS if
 * INTEROP_TLS is "true", and then trusts any certificate.
 */
public final class GrpcScenarios {
    private static final long TIMEOUT_S = 150;
    private static final Duration WAIT = Duration.ofSeconds(20);
    private static final Duration INVISIBLE = Duration.ofSeconds(30);
    private static final int DEAD_S = 25;
    private static final Duration SHORT = Duration.ofSeconds(5);
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();

    /** Something that may throw. */
    private interface Step {
        void run() throws Exception;
    }

    private final ClientConfiguration configuration;
    private final String topic;
    private final Map<String, Object> facts = new LinkedHashMap<>();
    private final Deque<Step> ends = new ArrayDeque<>();

    private GrpcScenarios(String proxy, String topic) {
        this.topic = topic;
        ClientConfigurationBuilder builder = ClientConfiguration.newBuilder()
            .setEndpoints(proxy).enableSsl("true".equals(System.getenv("INTEROP_TLS")))
            .setRequestTimeout(Duration.ofSeconds(10));
        String account = System.getenv("INTEROP_ACCOUNT");
        if (account != null) {
            String[] keys = account.split(" ");
            builder.setCredentialProvider(new StaticSessionCredentialsProvider(keys[0], keys[1]));
        }
        configuration = builder.build();
    }

    public static void main(String[] args) throws Exception {
        ExecutorService pool = Executors.newCachedThreadPool();
        for (String name : List.of(args).subList(2, args.length)) {
            GrpcScenarios one = new GrpcScenarios(args[0], args[1] + name);
            pool.submit(() -> Json.say(Json.write(one.outcome(name))));
        }
        pool.shutdown();
        pool.awaitTermination(TIMEOUT_S, TimeUnit.SECONDS);
        Json.say("end");
        Runtime.getRuntime().halt(0);
    }

    private Map<String, Object> outcome(String name) {
        Map<String, Object> outcome = new LinkedHashMap<>();
        outcome.put("scenario", name);
        outcome.put("facts", facts);
        long start = System.nanoTime();
        Map<String, Step> all = new TreeMap<>();
        all.put("grpc_simple", this::simple);
        all.put("grpc_simple_in_pages", this::simpleInPages);
        all.put("grpc_push", this::push);
        all.put("grpc_push_retry", this::pushRetry);
        all.put("grpc_push_dead", this::pushDead);
        all.put("grpc_fifo", this::fifo);
        all.put("grpc_forward", this::forward);
        all.put("grpc_delay", this::delay);
        all.put("grpc_recall", this::recall);
        all.put("grpc_transaction", this::transaction);
        all.put("grpc_filters", this::filters);
        all.put("grpc_priority", this::priority);
        all.put("grpc_refused", this::refused);
        try {
            all.get(name).run();
        } catch (Throwable e) {
            outcome.put("error", e.toString());
        }
        while (!ends.isEmpty()) {
            try {
                ends.pop().run();
            } catch (Throwable e) {
                outcome.putIfAbsent("error", "at the end: " + e);
            }
        }
        outcome.put("ms", TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start));
        return outcome;
    }

    // ---- what scenarios are made of ----

    private Producer producer() throws Exception {
        Producer producer = PROVIDER.newProducerBuilder()
            .setClientConfiguration(configuration).setTopics(topic).build();
        ends.push(producer::close);
        return producer;
    }

    private MessageBuilder message(String body) {
        return PROVIDER.newMessageBuilder().setTopic(topic)
            .setBody(body.getBytes(StandardCharsets.UTF_8));
    }

    private static String body(MessageView message) {
        return StandardCharsets.UTF_8.decode(message.getBody().duplicate()).toString();
    }

    private SimpleConsumer simpleConsumer(String group, FilterExpression filter, Duration await)
        throws Exception {
        SimpleConsumer consumer = PROVIDER.newSimpleConsumerBuilder()
            .setClientConfiguration(configuration).setConsumerGroup(group)
            .setAwaitDuration(await)
            // The consumer changes this map itself.
            .setSubscriptionExpressions(new HashMap<>(Map.of(topic, filter))).build();
        ends.push(consumer::close);
        return consumer;
    }

    /** Receive, queue after queue, until this number has come or the time is over. */
    private static List<MessageView> receive(SimpleConsumer consumer, int count, Duration hidden)
        throws Exception {
        List<MessageView> found = new ArrayList<>();
        long end = System.nanoTime() + WAIT.multipliedBy(2).toNanos();
        while (found.size() < count && System.nanoTime() < end) {
            found.addAll(consumer.receive(16, hidden));
        }
        return found;
    }

    /** The bodies and attempts that a listener has seen. */
    private static final class Seen {
        private final List<List<Object>> all = new ArrayList<>();

        synchronized int put(MessageView message) {
            all.add(List.of(body(message), message.getDeliveryAttempt()));
            notifyAll();
            return message.getDeliveryAttempt();
        }

        /** All that came, waiting for this number or until the time is over. */
        List<List<Object>> await(int count) throws InterruptedException {
            return await(count, WAIT.multipliedBy(3));
        }

        synchronized List<List<Object>> await(int count, Duration limit)
            throws InterruptedException {
            long end = System.nanoTime() + limit.toNanos();
            while (all.size() < count && System.nanoTime() < end) {
                TimeUnit.NANOSECONDS.timedWait(this, end - System.nanoTime());
            }
            return new ArrayList<>(all);
        }
    }

    private PushConsumer pushConsumer(Seen seen, Predicate<Integer> isGood) throws Exception {
        PushConsumer consumer = PROVIDER.newPushConsumerBuilder()
            .setClientConfiguration(configuration).setConsumerGroup(topic)
            .setConsumptionThreadCount(4)
            .setSubscriptionExpressions(Map.of(topic, FilterExpression.SUB_ALL))
            .setMessageListener(message -> isGood.test(seen.put(message))
                ? ConsumeResult.SUCCESS : ConsumeResult.FAILURE)
            .build();
        ends.push(consumer::close);
        return consumer;
    }

    private static List<Object> sorted(List<? extends Object> items) {
        List<Object> found = new ArrayList<>(items);
        found.sort((one, other) -> one.toString().compareTo(other.toString()));
        return found;
    }

    private static String codeOf(Step step) {
        try {
            step.run();
            return "done";
        } catch (ClientException e) {
            return e.getClass().getSimpleName();
        } catch (Throwable e) {
            return e.getClass().getSimpleName();
        }
    }

    // ---- scenarios ----

    /** Received, hidden for longer, received again, acknowledged, and gone. */
    private void simple() throws Exception {
        producer().send(message("one").setTag("a").setKeys("k1", "k2")
            .addProperty("colour", "red").build());
        SimpleConsumer consumer = simpleConsumer(topic, FilterExpression.SUB_ALL, SHORT);
        MessageView first = receive(consumer, 1, INVISIBLE).get(0);
        facts.put("first", seen(first));
        consumer.changeInvisibleDuration(first, Duration.ofSeconds(3));
        List<MessageView> again = receive(consumer, 1, INVISIBLE);
        facts.put("again", List.of(body(again.get(0)), again.get(0).getDeliveryAttempt()));
        facts.put("same_id", again.get(0).getMessageId().equals(first.getMessageId()));
        consumer.ack(again.get(0));
        facts.put("after_ack", consumer.receive(16, INVISIBLE).size());
    }

    private void simpleInPages() throws Exception {
        Producer producer = producer();
        for (int number = 10; number < 50; number++) {
            producer.send(message("" + number).build());
        }
        SimpleConsumer consumer = simpleConsumer(topic, FilterExpression.SUB_ALL, SHORT);
        List<MessageView> found = receive(consumer, 40, INVISIBLE);
        facts.put("received", sorted(found.stream().map(GrpcScenarios::body).toList()));
        for (MessageView message : found) {
            consumer.ack(message);
        }
        facts.put("another_group", receive(
            simpleConsumer(topic + "_other", FilterExpression.SUB_ALL, SHORT), 40, INVISIBLE)
            .size());
    }

    private void push() throws Exception {
        Seen seen = new Seen();
        pushConsumer(seen, attempt -> true);
        Producer producer = producer();
        for (int number = 0; number < 8; number++) {
            producer.send(message("" + number).build());
        }
        facts.put("received", sorted(seen.await(8)));
    }

    private void pushRetry() throws Exception {
        Seen seen = new Seen();
        producer().send(message("again").build());
        pushConsumer(seen, attempt -> attempt == 3);
        facts.put("received", seen.await(3));
    }

    private void pushDead() throws Exception {
        Seen seen = new Seen();
        producer().send(message("dead").build());
        pushConsumer(seen, attempt -> false);
        facts.put("received", seen.await(2));
        // The proxy hands it to the dead letters when it would give it out once more.
        facts.put("more", seen.await(3, Duration.ofSeconds(DEAD_S)).size() - 2);
    }

    /** What is received is sent to another topic as it is, and received there for the first time. */
    private void forward() throws Exception {
        Producer producer = producer();
        producer.send(message("one").setTag("a").setKeys("k").addProperty("colour", "red").build());
        List<Object> found = new ArrayList<>();
        SimpleConsumer consumer = simpleConsumer(topic, FilterExpression.SUB_ALL, SHORT);
        MessageView first = receive(consumer, 1, INVISIBLE).get(0);
        found.add(seen(first));
        MessageBuilder copy = PROVIDER.newMessageBuilder().setTopic(topic + "_next")
            .setBody(body(first).getBytes(StandardCharsets.UTF_8)).setTag(first.getTag().get())
            .setKeys(first.getKeys().toArray(new String[0]));
        first.getProperties().forEach(copy::addProperty);
        producer.send(copy.build());
        consumer.ack(first);
        consumer.subscribe(topic + "_next", FilterExpression.SUB_ALL);
        MessageView second = receive(consumer, 1, INVISIBLE).get(0);
        found.add(seen(second));
        consumer.ack(second);
        facts.put("received", found);
        facts.put("after_ack", consumer.receive(16, INVISIBLE).size());
    }

    private static List<Object> seen(MessageView message) {
        return List.of(body(message), message.getDeliveryAttempt(), message.getTag().get(),
            message.getKeys(), message.getProperties());
    }

    private void fifo() throws Exception {
        Producer producer = producer();
        for (int number = 0; number < 6; number++) {
            producer.send(message("" + number).setMessageGroup("one group").build());
        }
        Seen seen = new Seen();
        pushConsumer(seen, attempt -> true);
        facts.put("received", seen.await(6));
    }

    private void delay() throws Exception {
        long dueMs = System.currentTimeMillis() + 4_000;
        producer().send(message("late").setDeliveryTimestamp(dueMs).build());
        SimpleConsumer consumer = simpleConsumer(topic, FilterExpression.SUB_ALL, SHORT);
        List<MessageView> found = receive(consumer, 1, INVISIBLE);
        facts.put("received", found.stream().map(GrpcScenarios::body).toList());
        // 5.x rounds to its timer's precision, a second.
        facts.put("early", System.currentTimeMillis() < dueMs - 1_000);
        facts.put("timestamp", found.get(0).getDeliveryTimestamp().orElse(0L) == dueMs);
    }

    private void recall() throws Exception {
        Producer producer = producer();
        long dueMs = System.currentTimeMillis() + 12_000;
        SendReceipt receipt = producer.send(message("recalled").setDeliveryTimestamp(dueMs).build());
        producer.send(message("kept").setDeliveryTimestamp(dueMs).build());
        facts.put("same_id", producer.recallMessage(topic, receipt.getRecallHandle())
            .getMessageId().equals(receipt.getMessageId()));
        SimpleConsumer consumer = simpleConsumer(topic, FilterExpression.SUB_ALL, SHORT);
        List<MessageView> found = receive(consumer, 1, INVISIBLE);
        found.addAll(consumer.receive(16, INVISIBLE));
        facts.put("received", found.stream().map(GrpcScenarios::body).toList());
    }

    private void transaction() throws Exception {
        List<Object> checked = Collections.synchronizedList(new ArrayList<>());
        Producer producer = PROVIDER.newProducerBuilder()
            .setClientConfiguration(configuration).setTopics(topic)
            .setTransactionChecker(message -> {
                if (!checked.contains(body(message))) {
                    checked.add(body(message));
                }
                return body(message).equals("asked")
                    ? TransactionResolution.COMMIT : TransactionResolution.ROLLBACK;
            }).build();
        ends.push(producer::close);
        for (String body : new String[] {"committed", "rolled back", "asked", "asked in vain"}) {
            Transaction transaction = producer.beginTransaction();
            Message message = message(body).build();
            producer.send(message, transaction);
            if (body.equals("committed")) {
                transaction.commit();
            } else if (body.equals("rolled back")) {
                transaction.rollback();
            }
        }
        SimpleConsumer consumer = simpleConsumer(topic, FilterExpression.SUB_ALL, SHORT);
        List<Object> found = new ArrayList<>();
        for (MessageView message : receive(consumer, 2, INVISIBLE)) {
            found.add(body(message));
            consumer.ack(message);
        }
        long end = System.nanoTime() + WAIT.toNanos();
        while (checked.size() < 2 && System.nanoTime() < end) {
            consumer.receive(16, INVISIBLE).forEach(message -> found.add(body(message)));
        }
        facts.put("received", sorted(found));
        facts.put("checked", sorted(checked));
    }

    private void filters() throws Exception {
        Producer producer = producer();
        for (String tag : new String[] {"a", "b", "c"}) {
            producer.send(message(tag).setTag(tag).addProperty("size", "" + tag.charAt(0)).build());
        }
        facts.put("by_tag", sorted(receive(
            simpleConsumer(topic + "_tag", new FilterExpression("a || c"), SHORT), 2, INVISIBLE)
            .stream().map(GrpcScenarios::body).toList()));
        facts.put("by_sql", sorted(receive(
            simpleConsumer(topic + "_sql",
                new FilterExpression("size = 'b'", FilterExpressionType.SQL92), SHORT),
            1, INVISIBLE).stream().map(GrpcScenarios::body).toList()));
    }

    /** Messages that wait are received by priority, the highest first. */
    private void priority() throws Exception {
        Producer producer = producer();
        for (int priority : new int[] {1, 3, 0, 2}) {
            producer.send(message("" + priority).setPriority(priority).build());
        }
        SimpleConsumer consumer = simpleConsumer(topic, FilterExpression.SUB_ALL, SHORT);
        List<Object> found = new ArrayList<>();
        for (int number = 0; number < 4; number++) {
            for (MessageView message : consumer.receive(1, INVISIBLE)) {
                found.add(List.of(body(message), message.getPriority().orElse(-1)));
            }
        }
        facts.put("received", found);
    }

    /** The codes of what a proxy refuses, some of them by the broker's answer. */
    private void refused() throws Exception {
        facts.put("unknown_topic", codeOf(() -> PROVIDER.newProducerBuilder()
            .setClientConfiguration(configuration).setTopics(topic + "_unknown").build()));
        Producer producer = producer();
        facts.put("wrong_type", codeOf(() -> producer.send(
            message("x").setMessageGroup("a").build())));
        producer.send(message("one").build());
        SimpleConsumer consumer = simpleConsumer(topic, FilterExpression.SUB_ALL, SHORT);
        MessageView one = receive(consumer, 1, Duration.ofSeconds(10)).get(0);
        facts.put("acked", codeOf(() -> consumer.ack(one)));
        facts.put("acked_again", codeOf(() -> consumer.ack(one)));
        facts.put("too_short", codeOf(() -> consumer.receive(1, Duration.ofSeconds(1))));
        facts.put("bad_filter", codeOf(() -> simpleConsumer(topic + "_bad",
            new FilterExpression("a = ", FilterExpressionType.SQL92), SHORT)
            .receive(1, INVISIBLE)));
        facts.put("bad_handle", codeOf(() -> producer.recallMessage(topic, "AAAA")));
    }
}
