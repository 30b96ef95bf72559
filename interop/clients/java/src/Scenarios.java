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
 * Arguments: the name server's HOST:PORT, the prefix of topics and groups, and the
 * scenarios' names. Prints for each {"scenario": NAME, "facts": {...}}, or "error" with an
 * error text, and finally the line "end". interop/scenarios/ has the expected facts.
 *
 * A name with colons, NAME:SEND:CONSUME, runs through a fault of the broker:
 * {"at": POINT, "scenario": NAME} reports its progress, and a line NAME POINT resumes it.
 */
public final class Scenarios {
    private static final long TIMEOUT_S = 110;
    private static final long THROUGH_TIMEOUT_S = 600;

    private Scenarios() {
    }

    public static void main(String[] args) {
        try {
            play(args);
            Runtime.getRuntime().halt(0);
        } catch (Throwable e) {
            e.printStackTrace();
            // Else the client's own threads would go on.
            Runtime.getRuntime().halt(1);
        }
    }

    private static void play(String[] args) throws Exception {
        Map<String, Stage> stages = new TreeMap<>();
        boolean isThrough = false;
        for (int number = 2; number < args.length; number++) {
            isThrough |= args[number].contains(":");
            Stage stage = new Stage(args[0], args[1] + args[number].split(":")[0]);
            stage.lookUp();
            stages.put(args[number], stage);
        }
        Points.start();
        ExecutorService pool = Executors.newCachedThreadPool();
        stages.forEach((argument, stage) ->
            pool.submit(() -> Json.say(Json.write(outcome(argument.split(":"), stage)))));
        pool.shutdown();
        pool.awaitTermination(isThrough ? THROUGH_TIMEOUT_S : TIMEOUT_S, TimeUnit.SECONDS);
        Json.say("end");
    }

    private static Map<String, Object> outcome(String[] words, Stage stage) {
        Map<String, Object> outcome = new LinkedHashMap<>();
        outcome.put("scenario", words[0]);
        outcome.put("facts", stage.facts);
        long start = System.nanoTime();
        try (stage) {
            if (words.length > 1) {
                new Through(stage, words).play();
            } else {
                Features.ALL.get(words[0]).play(stage);
            }
        } catch (InvocationTargetException e) {
            outcome.put("error", e.getCause().toString());
        } catch (Throwable e) {
            outcome.put("error", e.toString());
        }
        outcome.put("ms", TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start));
        return outcome;
    }
}
