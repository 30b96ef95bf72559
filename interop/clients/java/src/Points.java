import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;

/** Synchronisation points with the harness: a line out, and a line in that resumes. */
final class Points {
    private static final Map<String, CountDownLatch> PASSED = new ConcurrentHashMap<>();

    private Points() {
    }

    /** Read stdin from now on: each line is "SCENARIO POINT". */
    static void start() {
        Thread reader = new Thread(Points::read, "points");
        reader.setDaemon(true);
        reader.start();
    }

    private static void read() {
        BufferedReader lines =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                latch(line).countDown();
            }
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private static CountDownLatch latch(String line) {
        return PASSED.computeIfAbsent(line, key -> new CountDownLatch(1));
    }

    /** Report a scenario's point; the latch is at zero when the harness resumes it. */
    static CountDownLatch reach(String name, String point) {
        Json.say(Json.write(Map.of("at", point, "scenario", name)));
        return latch(name + " " + point);
    }
}
