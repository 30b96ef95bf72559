import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.exception.RemotingException;

/**
 * Sends and consumes through a fault of the broker, and reports sends and received messages.
 *
 * A step is one message of each of four keys. Sends that fail are repeated until they are
 * acknowledged, so every message reported as acknowledged must be received.
 *
 * For all versions of the client.
 */
final class Through {
    static final int KEYS = 4;
    private static final int STEPS_BEFORE = 5;
    private static final int STEPS_AFTER = 5;
    private static final long PAUSE_NS = TimeUnit.MILLISECONDS.toNanos(400);
    private static final long SEND_DEADLINE_NS = TimeUnit.SECONDS.toNanos(90);
    /** A connection that the client lost sight of counts as a member of its group for 120 s. */
    private static final long RECEIVE_DEADLINE_NS = TimeUnit.SECONDS.toNanos(170);
    private static final long ANSWER_DEADLINE_S = 60;
    /** How long the broker waits for a popped message that is not acknowledged. */
    private static final long POP_INVISIBLE_MS = 10_000;
    /** Deliveries of a message to a consumer that rejects it, the last included. */
    private static final int TRIES = 3;

    /** Sends one message in a transaction. */
    interface TransactionSender {
        void send(Message message) throws Exception;
    }

    private final Stage stage;
    private final String name;
    private final String send;
    private final String consume;
    private final List<String> acknowledged = new ArrayList<>();
    private final List<String> failed = new ArrayList<>();
    private final List<Object> received = Collections.synchronizedList(new ArrayList<>());
    private final Map<String, Integer> lastTries = Collections.synchronizedMap(new HashMap<>());
    private TransactionSender transactions;
    private volatile boolean over;
    private int step;

    Through(Stage stage, String[] words) {
        this.stage = stage;
        this.name = words[0];
        this.send = words[1];
        this.consume = words[2];
    }

    /** Whether a transaction of this key is committed in the end. */
    static boolean isCommitted(int key) {
        return key % 2 == 0;
    }

    /** Whether how a transaction of this key ends is said only when the broker asks. */
    static boolean isAskedAbout(int key) {
        return key >= 2;
    }

    static int key(Message message) {
        return Integer.parseInt(Stage.body(message).split("/")[0]);
    }

    void play() throws Exception {
        if (send.equals("transaction")) {
            transactions = Version.transactions(stage);
        }
        try {
            startConsumer();
            int before = sendSteps(() -> step >= STEPS_BEFORE);
            awaitReceived();
            CountDownLatch ready = Points.reach(name, "ready");
            int during = sendSteps(() -> ready.getCount() == 0);
            int end = step + STEPS_AFTER;
            int after = sendSteps(() -> step >= end);
            awaitReceived();
            stage.facts.put("counts", List.of(before, during, after));
            Points.reach(name, "done").await();
        } finally {
            over = true;
            stage.facts.put("failed", failed);
            stage.facts.put("acknowledged", acknowledged);
            synchronized (received) {
                stage.facts.put("received", new ArrayList<>(received));
            }
        }
    }

    // ---- sending ----

    private int sendSteps(BooleanSupplier isEnough) throws Exception {
        int before = acknowledged.size();
        while (!isEnough.getAsBoolean()) {
            List<Message> messages = new ArrayList<>();
            for (int key = 0; key < KEYS; key++) {
                messages.add(message(key));
            }
            if (send.equals("batch") || send.equals("async")) {
                untilAcknowledged(messages);
            } else {
                for (Message message : messages) {
                    untilAcknowledged(Arrays.asList(message));
                }
            }
            step++;
            LockSupport.parkNanos(PAUSE_NS);
        }
        return acknowledged.size() - before;
    }

    private Message message(int key) {
        String body = key + "/" + step;
        Message message = stage.message("T" + key, "k-" + body, body);
        message.putUserProperty("step", "" + step);
        if (send.equals("delayed")) {
            message.setDelayTimeLevel(1 + key % 2);
        }
        return message;
    }

    private void untilAcknowledged(List<Message> messages) throws Exception {
        long end = System.nanoTime() + SEND_DEADLINE_NS;
        List<Message> left = messages;
        while (!left.isEmpty()) {
            Map<Message, Throwable> errors = attempt(left);
            List<Message> again = new ArrayList<>();
            for (Message message : left) {
                String body = Stage.body(message);
                Throwable error = errors.get(message);
                if (error == null) {
                    acknowledged.add(body);
                } else if (System.nanoTime() > end) {
                    throw new TimeoutException(body + " is not acknowledged: " + error);
                } else {
                    String text = body + ": " + error;
                    failed.add(text.substring(0, Math.min(200, text.length())));
                    // A new one: the client has put its own properties into this one.
                    Message fresh = message(key(message));
                    again.add(fresh);
                }
            }
            left = again;
            if (!left.isEmpty()) {
                LockSupport.parkNanos(PAUSE_NS);
            }
        }
    }

    /** Send once, as far as the program is concerned; the errors. */
    private Map<Message, Throwable> attempt(List<Message> messages) throws Exception {
        if (send.equals("async")) {
            return attemptAsync(messages);
        }
        Map<Message, Throwable> errors = new HashMap<>();
        Message first = messages.get(0);
        try {
            if (send.equals("batch")) {
                stage.producer().send(messages);
            } else if (send.equals("transaction")) {
                transactions.send(first);
            } else if (send.equals("ordered")) {
                stage.producer().send(first,
                    (queues, each, key) -> queues.get((Integer) key % queues.size()), key(first));
            } else {
                stage.producer().send(first);
            }
        } catch (MQClientException | MQBrokerException | RemotingException e) {
            messages.forEach(message -> errors.put(message, e));
        }
        return errors;
    }

    private Map<Message, Throwable> attemptAsync(List<Message> messages) throws Exception {
        Map<Message, Throwable> errors = Collections.synchronizedMap(new HashMap<>());
        CountDownLatch answers = new CountDownLatch(messages.size());
        for (Message message : messages) {
            SendCallback callback = new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    answers.countDown();
                }

                @Override
                public void onException(Throwable e) {
                    errors.put(message, e);
                    answers.countDown();
                }
            };
            try {
                stage.producer().send(message, callback);
            } catch (MQClientException | RemotingException e) {
                callback.onException(e);
            }
        }
        if (!answers.await(ANSWER_DEADLINE_S, TimeUnit.SECONDS)) {
            throw new TimeoutException("a callback was not called");
        }
        return errors;
    }

    // ---- receiving ----

    private void startConsumer() throws Exception {
        if (consume.equals("pull")) {
            Version.poll(stage, this::take, () -> over);
            return;
        }
        DefaultMQPushConsumer consumer = consume.equals("pop")
            ? Version.popConsumer(stage, POP_INVISIBLE_MS) : stage.consumer();
        consumer.setConsumeThreadMin(KEYS);
        consumer.setConsumeThreadMax(KEYS);
        consumer.setPersistConsumerOffsetInterval(1000);
        if (consume.equals("sql")) {
            consumer.subscribe(stage.topic, MessageSelector.bySql("step >= 0"));
        } else {
            consumer.subscribe(stage.topic, "*");
        }
        if (consume.equals("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                messages.forEach(this::take);
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                messages.forEach(this::take);
                context.setDelayLevelWhenNextConsume(1);
                return consume.equals("retry") && messages.get(0).getReconsumeTimes() < TRIES - 1
                    ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                    : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        consumer.start();
        stage.atEnd(consumer::shutdown);
    }

    private void take(MessageExt message) {
        String body = Stage.body(message);
        received.add(Arrays.asList(body, message.getReconsumeTimes(), message.getTags(),
            message.getKeys(), message.getProperty("step"),
            message.getTopic().equals(stage.topic),
            System.currentTimeMillis() - message.getBornTimestamp()));
        lastTries.merge(body, message.getReconsumeTimes(), Math::max);
    }

    private Set<String> missing() {
        int last = consume.equals("retry") ? TRIES - 1 : 0;
        Set<String> missing = new HashSet<>();
        for (String body : acknowledged) {
            boolean isWanted = !send.equals("transaction")
                || isCommitted(Integer.parseInt(body.split("/")[0]));
            if (isWanted && lastTries.getOrDefault(body, -1) < last) {
                missing.add(body);
            }
        }
        return missing;
    }

    /** Wait until all acknowledged messages are received; the harness reports missing ones. */
    private void awaitReceived() {
        long end = System.nanoTime() + RECEIVE_DEADLINE_NS;
        while (!missing().isEmpty() && System.nanoTime() < end) {
            Stage.pause();
        }
    }
}
