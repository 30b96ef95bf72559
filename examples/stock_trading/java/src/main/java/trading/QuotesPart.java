package trading;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import java.util.function.Predicate;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A quote carries its symbol as tag, and symbol and price as properties. Consumers take what they
 * follow: one by tags, one by an SQL expression. The broker filters, so the rest never travels.
 */
final class QuotesPart implements Part {
    private static final MessageSelector BY_TAG = MessageSelector.byTag("TRK || ZEN");
    private static final MessageSelector BY_SQL = MessageSelector.bySql(
        "(symbol = 'TRK' AND price > 100) OR (symbol = 'APX' AND price BETWEEN 48 AND 49)");

    private record Quote(String symbol, int price) {
        boolean hasTag() {
            return symbol.equals("TRK") || symbol.equals("ZEN");
        }

        boolean matches() {
            return symbol.equals("TRK") && price > 100
                || symbol.equals("APX") && 48 <= price && price <= 49;
        }
    }

    private static final List<Quote> QUOTES = List.of(
        new Quote("TRK", 98), new Quote("APX", 51), new Quote("TRK", 101), new Quote("ZEN", 7),
        new Quote("APX", 49), new Quote("TRK", 104), new Quote("ZEN", 8), new Quote("APX", 47),
        new Quote("TRK", 99), new Quote("ZEN", 101), new Quote("APX", 48), new Quote("TRK", 103));

    private final Market market;
    private final Follower byTag = new Follower("by tag", Quote::hasTag);
    private final Follower bySql = new Follower("by SQL", Quote::matches);

    QuotesPart(Market market) {
        this.market = market;
    }

    @Override
    public String name() {
        return "quotes";
    }

    @Override
    public void start() throws Exception {
        List<Message> batch = new ArrayList<>();
        for (Quote quote : QUOTES) {
            String text = quote.symbol + " at " + quote.price;
            Message message = market.message("quotes", quote.symbol, "", text);
            message.putUserProperty("symbol", quote.symbol);
            message.putUserProperty("price", String.valueOf(quote.price));
            batch.add(message);
        }
        market.producer().send(batch); // one request, into one queue
        byTag.follow("tag-follower", BY_TAG);
        bySql.follow("sql-follower", BY_SQL);
    }

    @Override
    public void await() throws InterruptedException {
        market.await(byTag.missing);
        market.await(bySql.missing);
    }

    @Override
    public void report(Report report) {
        byTag.report("quotes_by_tag", report);
        bySql.report("quotes_by_sql", report);
    }

    /** A consumer of some of the quotes. */
    private final class Follower {
        private final String how;
        private final List<Quote> wanted;
        private final CountDownLatch missing;
        /** By queue offset, as many threads of a consumer work at a time. */
        private final Map<Long, Quote> came = new TreeMap<>();

        Follower(String how, Predicate<Quote> wants) {
            this.how = how;
            this.wanted = QUOTES.stream().filter(wants).toList();
            this.missing = new CountDownLatch(wanted.size());
        }

        void follow(String group, MessageSelector selector) throws Exception {
            DefaultMQPushConsumer consumer = market.consumer(group);
            consumer.subscribe(market.name("quotes"), selector);
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                messages.forEach(this::consume);
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            market.start(consumer);
        }

        private synchronized void consume(MessageExt message) {
            String price = message.getUserProperty("price");
            Quote quote = new Quote(message.getTags(), Integer.parseInt(price));
            came.put(message.getQueueOffset(), quote);
            Report.say(name(), how + ": " + quote.symbol + " at " + quote.price);
            missing.countDown();
        }

        synchronized void report(String fact, Report report) {
            report.mustBe(fact, bySymbol(wanted), bySymbol(List.copyOf(came.values())));
        }

        private static Map<String, List<Integer>> bySymbol(List<Quote> quotes) {
            Map<String, List<Integer>> prices = new TreeMap<>();
            for (Quote quote : quotes) {
                prices.computeIfAbsent(quote.symbol, none -> new ArrayList<>()).add(quote.price);
            }
            return prices;
        }
    }
}
