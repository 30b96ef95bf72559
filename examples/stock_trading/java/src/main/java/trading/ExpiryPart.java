package trading;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * With each order goes a delayed message. When it comes, an order that is still open is cancelled;
 * of one that is filled by then nothing more is to be done.
 */
final class ExpiryPart implements Part {
    private static final List<String> ORDERS = List.of("limit-1", "limit-2", "limit-3");
    private static final String FILLED_IN_TIME = "limit-2";
    private static final int DELAY_LEVEL = 2; // of "1s 5s 10s 30s 1m …", counted from 1
    private static final long DELAY_MS = 5000;

    private final Market market;
    private final Set<String> open = new HashSet<>();
    private final Map<String, Long> sentNs = new TreeMap<>();
    private final Map<String, Long> lateMs = new TreeMap<>();
    private final List<String> expired = new ArrayList<>();
    private final List<String> filled = new ArrayList<>();
    private final CountDownLatch missing = new CountDownLatch(ORDERS.size());

    ExpiryPart(Market market) {
        this.market = market;
    }

    @Override
    public String name() {
        return "expiry";
    }

    @Override
    public void start() throws Exception {
        for (String order : ORDERS) {
            open(order);
        }
        DefaultMQPushConsumer clerk = market.consumer("expiry-clerk");
        clerk.subscribe(market.name("expiry"), "*");
        clerk.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(this::expire);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        market.start(clerk);
        fill(FILLED_IN_TIME);
    }

    @Override
    public void await() throws InterruptedException {
        market.await(missing);
    }

    private void open(String order) throws Exception {
        synchronized (this) {
            open.add(order);
            sentNs.put(order, System.nanoTime());
        }
        Message check = market.message("expiry", "", order, "still open?");
        check.setDelayTimeLevel(DELAY_LEVEL);
        market.producer().send(check);
        Report.say(name(), order + ": open, for " + DELAY_MS + " ms");
    }

    private synchronized void fill(String order) {
        open.remove(order);
        Report.say(name(), order + ": filled");
    }

    private synchronized void expire(MessageExt check) {
        String order = check.getKeys();
        long passedNs = System.nanoTime() - sentNs.get(order);
        long late = TimeUnit.NANOSECONDS.toMillis(passedNs) - DELAY_MS;
        lateMs.put(order, late);
        if (open.remove(order)) {
            expired.add(order);
            Report.say(name(), order + ": not filled, cancelled " + late + " ms late");
        } else {
            filled.add(order);
            Report.say(name(), order + ": was filled, nothing to do, " + late + " ms late");
        }
        missing.countDown();
    }

    @Override
    public synchronized void report(Report report) {
        expired.sort(null);
        report.mustBe("orders_expired", List.of("limit-1", "limit-3"), expired);
        report.mustBe("orders_filled", List.of(FILLED_IN_TIME), filled);
        report.fact("expiry_late_ms", lateMs);
        lateMs.forEach((order, late) -> {
            if (late < 0) {
                report.fail(order + " was cancelled " + -late + " ms early");
            }
        });
    }
}
