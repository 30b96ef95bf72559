package trading;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Money is held if and only if its order is placed. The broker keeps the order back while the
 * account is changed; what the account then says decides. Where the producer never says it, the
 * broker asks.
 */
final class TransactionsPart implements Part, TransactionListener {
    private static final int SECONDS_UNTIL_ASKED = 6; // the broker's transactionTimeOut

    /** What happens to the producer while it works on an order. */
    private enum Mishap { NONE, DIES_AFTER_HOLDING, DIES_BEFORE_HOLDING }

    private record Order(String id, String account, int amount, Mishap mishap) {
    }

    private static final List<Order> ORDERS = List.of(
        new Order("enough-money", "alice", 300, Mishap.NONE),
        new Order("too-little-money", "bob", 1500, Mishap.NONE),
        new Order("dies-after-holding", "carol", 400, Mishap.DIES_AFTER_HOLDING),
        new Order("dies-before-holding", "alice", 200, Mishap.DIES_BEFORE_HOLDING));

    private final Market market;
    private final AccountBook book =
        new AccountBook(Map.of("alice", 1000, "bob", 1000, "carol", 1000));
    private final Map<String, String> answered = new TreeMap<>();
    private final Map<String, String> asked = new TreeMap<>();
    private final List<String> placed = new ArrayList<>();
    private final List<String> repeated = new ArrayList<>();
    private final CountDownLatch missing = new CountDownLatch(4); // two are asked about, two placed

    TransactionsPart(Market market) {
        this.market = market;
    }

    @Override
    public String name() {
        return "transactions";
    }

    @Override
    public void start() throws Exception {
        TransactionMQProducer producer = market.transactionProducer("accounts", this);
        for (Order order : ORDERS) {
            String text = order.account + " buys for " + order.amount;
            Message message = market.message("placed", "", order.id, text);
            producer.sendMessageInTransaction(message, order);
        }
        DefaultMQPushConsumer exchange = market.consumer("exchange");
        exchange.subscribe(market.name("placed"), "*");
        exchange.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(this::place);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        market.start(exchange);
        Report.say(name(), "two are asked about after " + SECONDS_UNTIL_ASKED + " s");
    }

    @Override
    public void await() throws InterruptedException {
        market.await(missing);
    }

    /** Called when the broker has the order and shows it to no consumer yet. */
    @Override
    public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
        Order order = (Order) argument;
        LocalTransactionState state = switch (order.mishap) {
            case NONE -> hold(order) ? LocalTransactionState.COMMIT_MESSAGE
                : LocalTransactionState.ROLLBACK_MESSAGE;
            case DIES_AFTER_HOLDING -> {
                hold(order);
                yield LocalTransactionState.UNKNOW;
            }
            case DIES_BEFORE_HOLDING -> LocalTransactionState.UNKNOW;
        };
        synchronized (this) {
            answered.put(order.id, state.name());
        }
        Report.say(name(), order.id + ": " + order.amount + " of " + order.account
            + (book.isHeld(order.id) ? " held" : " not held") + ", tells " + state);
        return state;
    }

    private boolean hold(Order order) {
        return book.hold(order.id, order.account, order.amount);
    }

    /** Called when the broker got no answer. Another process may be asked: use the book. */
    @Override
    public LocalTransactionState checkLocalTransaction(MessageExt message) {
        String id = message.getKeys();
        LocalTransactionState state = book.isHeld(id)
            ? LocalTransactionState.COMMIT_MESSAGE : LocalTransactionState.ROLLBACK_MESSAGE;
        Report.say(name(), id + ": asked about, tells " + state);
        synchronized (this) {
            if (asked.put(id, state.name()) == null) {
                missing.countDown();
            }
        }
        return state;
    }

    /** An order may come twice, as any message may, and must not be placed twice. */
    private synchronized void place(MessageExt message) {
        String id = message.getKeys();
        if (placed.contains(id)) {
            repeated.add(id);
            Report.say(name(), id + ": came again, is placed already");
            return;
        }
        placed.add(id);
        Report.say(name(), id + ": placed");
        missing.countDown();
    }

    @Override
    public synchronized void report(Report report) {
        report.mustBe("balances", Map.of("alice", 700, "bob", 1000, "carol", 600), book.balances());
        report.mustBe("transactions_answered", Map.of(
            "enough-money", "COMMIT_MESSAGE", "too-little-money", "ROLLBACK_MESSAGE",
            "dies-after-holding", "UNKNOW", "dies-before-holding", "UNKNOW"), answered);
        report.mustBe("transactions_asked", Map.of(
            "dies-after-holding", "COMMIT_MESSAGE",
            "dies-before-holding", "ROLLBACK_MESSAGE"), asked);
        report.mustBe("orders_placed", List.of("enough-money", "dies-after-holding"), placed);
        report.fact("orders_repeated", repeated);
    }
}
