package trading;

import java.util.List;

/**
 * Plays all parts and says whether what must hold did.
 *
 * <p>Exit status: 0 if it did, 1 if not, 2 for wrong arguments.
 */
public final class StockTrading {
    private static final String USAGE =
        "usage: stock-trading [--namesrv HOST:PORT] [--run NAME] [--timeout SECONDS] [--json]";

    private String namesrv = "127.0.0.1:9876";
    private String run = "java-" + Long.toString(System.currentTimeMillis(), Character.MAX_RADIX);
    private int timeoutSeconds = 20;
    private boolean json;

    private StockTrading(String[] arguments) {
        for (int at = 0; at < arguments.length; at++) {
            switch (arguments[at]) {
                case "--namesrv" -> namesrv = arguments[++at];
                case "--run" -> run = arguments[++at];
                case "--timeout" -> timeoutSeconds = Integer.parseInt(arguments[++at]);
                case "--json" -> json = true;
                default -> throw new IllegalArgumentException(arguments[at]);
            }
        }
    }

    public static void main(String[] arguments) {
        // How soon a consumer that got no queues tries again; else 20 s, which is a whole run.
        System.setProperty("rocketmq.client.rebalance.waitInterval", "2000");
        StockTrading trading;
        try {
            trading = new StockTrading(arguments);
        } catch (IllegalArgumentException | ArrayIndexOutOfBoundsException wrong) {
            System.err.println(USAGE);
            System.exit(2);
            return;
        }
        Report report = trading.play();
        report.failures().forEach(text -> Report.say("WRONG", text));
        if (report.failures().isEmpty()) {
            Report.say("done", "everything is as it must be");
        }
        if (trading.json) {
            System.out.println(report.json());
        }
        System.exit(report.failures().isEmpty() ? 0 : 1);
    }

    private Report play() {
        Report.say("begin", "run " + run + " at " + namesrv);
        Report report = new Report();
        try (Market market = new Market(namesrv, run, timeoutSeconds)) {
            List<Part> parts = List.of(
                new OrdersPart(market), new QuotesPart(market), new TransactionsPart(market),
                new ExpiryPart(market));
            for (Part part : parts) {
                part.start();
            }
            market.startTime();
            for (Part part : parts) {
                part.await();
            }
            // Only now: what should not have come had all the time until here to come.
            parts.forEach(part -> part.report(report));
        } catch (Exception error) {
            report.fail(error.toString());
        }
        return report;
    }
}
