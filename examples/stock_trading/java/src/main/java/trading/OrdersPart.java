package trading;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * The orders of an account all go to one queue, and a queue is consumed by one thread at a time:
 * so they are consumed in the order in which they were sent, while other accounts go on beside.
 */
final class OrdersPart implements Part {
    private static final List<String> ACCOUNTS = List.of("alice", "bob", "carol");
    private static final int ORDERS_PER_ACCOUNT = 4;

    private final Market market;
    private final Map<String, List<String>> sent = new TreeMap<>();
    private final Map<String, List<String>> consumed = new TreeMap<>();
    private final CountDownLatch missing =
        new CountDownLatch(ACCOUNTS.size() * ORDERS_PER_ACCOUNT);

    OrdersPart(Market market) {
        this.market = market;
    }

    @Override
    public String name() {
        return "orders";
    }

    @Override
    public void start() throws Exception {
        for (int number = 1; number <= ORDERS_PER_ACCOUNT; number++) {
            for (String account : ACCOUNTS) {
                send(account, account + "-" + number);
            }
        }
        DefaultMQPushConsumer engine = market.consumer("matching-engine");
        engine.subscribe(market.name("orders"), "*");
        engine.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            messages.forEach(this::consume);
            return ConsumeOrderlyStatus.SUCCESS;
        });
        market.start(engine);
    }

    @Override
    public void await() throws InterruptedException {
        market.await(missing);
    }

    private void send(String account, String id) throws Exception {
        Message order = market.message("orders", "", id, "buy 10 TRK");
        order.putUserProperty("account", account);
        market.producer().send(order, new SelectMessageQueueByHash(), account);
        sent.computeIfAbsent(account, none -> new ArrayList<>()).add(id);
    }

    private synchronized void consume(MessageExt order) {
        String account = order.getUserProperty("account");
        consumed.computeIfAbsent(account, none -> new ArrayList<>()).add(order.getKeys());
        Report.say(name(), order.getKeys() + " from queue " + order.getQueueId() + ": "
            + new String(order.getBody(), StandardCharsets.UTF_8));
        missing.countDown();
    }

    @Override
    public synchronized void report(Report report) {
        report.mustBe("orders", sent, consumed);
    }
}
