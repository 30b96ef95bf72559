import java.lang.reflect.InvocationTargetException;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/**
 * Plays scenarios of messaging features, all at the same time, as users of the official client.
 *
 * Arguments: the name server's HOST:PORT, what the names of topics and groups begin with, and the
 * scenarios' names. Prints for each {"scenario": NAME, "facts": {...}}, or "error" with what stood
 * in its way, and at last the line "end". tests/interop/scenarios/ has what is expected.
 */
public final class Scenarios {
    private static final long TIMEOUT_S = 110;

    private interface Scenario {
        void play(Stage stage) throws Exception;
    }

    private static final Map<String, Scenario> ALL = new TreeMap<>();

    static {
        ALL.put("send_sync", SendScenarios::sync);
        ALL.put("send_async", SendScenarios::async);
        ALL.put("send_oneway", SendScenarios::oneway);
        ALL.put("send_batch", SendScenarios::batch);
        ALL.put("send_by_selector", SendScenarios::bySelector);
        ALL.put("send_auto_created", SendScenarios::autoCreated);
        ALL.put("send_too_large", SendScenarios::tooLarge);
        ALL.put("send_unicode", SendScenarios::unicode);
        ALL.put("send_compressed", SendScenarios::compressed);
        ALL.put("send_namespace", SendScenarios::namespace);
        ALL.put("send_auto_batched", SendScenarios::autoBatched);
        ALL.put("send_vip", SendScenarios::vip);
        ALL.put("push_concurrent", PushScenarios::concurrent);
        ALL.put("push_orderly", PushScenarios::orderly);
        ALL.put("push_broadcasting", PushScenarios::broadcasting);
        ALL.put("push_tags", PushScenarios::tags);
        ALL.put("push_sql", PushScenarios::sql);
        ALL.put("push_two_topics", PushScenarios::twoTopics);
        ALL.put("group_from_first", GroupScenarios::fromFirst);
        ALL.put("group_from_last", GroupScenarios::fromLast);
        ALL.put("group_from_time", GroupScenarios::fromTime);
        ALL.put("group_goes_on", GroupScenarios::goesOn);
        ALL.put("group_rebalance", GroupScenarios::rebalance);
        ALL.put("pull_queue", PullScenarios::queue);
        ALL.put("pull_subscribed", PullScenarios::subscribed);
        ALL.put("pull_assigned", PullScenarios::assigned);
        ALL.put("later_retry", LaterScenarios::retry);
        ALL.put("later_partly", LaterScenarios::partly);
        ALL.put("later_orderly", LaterScenarios::orderly);
        ALL.put("later_level", LaterScenarios::level);
        ALL.put("later_timer", LaterScenarios::timer);
        ALL.put("later_recall", LaterScenarios::recall);
        ALL.put("transaction", TransactionScenario::play);
        ALL.put("query", AskScenarios::query);
        ALL.put("request_reply", AskScenarios::requestReply);
        ALL.put("request_unanswered", AskScenarios::requestUnanswered);
        ALL.put("trace", AskScenarios::trace);
    }

    private Scenarios() {
    }

    public static void main(String[] args) throws Exception {
        Map<String, Stage> stages = new TreeMap<>();
        for (int number = 2; number < args.length; number++) {
            Stage stage = new Stage(args[0], args[1] + args[number]);
            stage.lookUp();
            stages.put(args[number], stage);
        }
        ExecutorService pool = Executors.newCachedThreadPool();
        stages.forEach((name, stage) -> pool.submit(() -> say(Json.write(outcome(name, stage)))));
        pool.shutdown();
        pool.awaitTermination(TIMEOUT_S, TimeUnit.SECONDS);
        say("end");
        Runtime.getRuntime().halt(0);
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    private static Map<String, Object> outcome(String name, Stage stage) {
        Map<String, Object> outcome = new LinkedHashMap<>();
        outcome.put("scenario", name);
        outcome.put("facts", stage.facts);
        long start = System.nanoTime();
        try (stage) {
            ALL.get(name).play(stage);
        } catch (InvocationTargetException e) {
            outcome.put("error", e.getCause().toString());
        } catch (Throwable e) {
            outcome.put("error", e.toString());
        }
        outcome.put("ms", TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start));
        return outcome;
    }
}
