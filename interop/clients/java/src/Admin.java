import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.regex.Pattern;

/**
 * Runs mqadmin's commands in one JVM, one after the other: starting a JVM for each takes far longer.
 *
 * A line of standard input is one command: milliseconds it may take, a pattern that says when one
 * that goes on for ever has printed enough (or nothing), and the arguments, with tabs between. The
 * answer is a line of JSON with what it printed, on either stream, and whether it was cut short.
 *
 * mqadmin's class is looked up by its name, since it is in other jars than the clients'.
 */
final class Admin {
    private static final long STEP_MS = 20;
    private static final PrintStream ANSWERS = System.out;

    /** What the command under way has printed; null between commands. */
    private static volatile ByteArrayOutputStream underWay;

    private Admin() {
    }

    public static void main(String[] unused) throws Exception {
        Class<?> hook = Class.forName("org.apache.rocketmq.remoting.RPCHook");
        Method command = Class.forName("org.apache.rocketmq.tools.command.MQAdminStartup")
            .getMethod("main0", String[].class, hook);
        BufferedReader lines =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Runtime.getRuntime().addShutdownHook(new Thread(Admin::answerAtExit));
        answer("ready", "", true);
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split("\t", -1);
            String[] arguments = Arrays.copyOfRange(words, 2, words.length);
            Pattern enough = words[1].isEmpty() ? null : Pattern.compile(words[1]);
            play(command, arguments, Long.parseLong(words[0]), enough);
        }
        System.exit(0);
    }

    private static void play(Method command, String[] arguments, long limitMs, Pattern enough)
        throws InterruptedException {
        // A new stream for each: threads left by an earlier command keep printing into theirs.
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        underWay = printed;
        PrintStream stream = new PrintStream(printed, true, StandardCharsets.UTF_8);
        System.setOut(stream);
        System.setErr(stream);
        Thread thread = new Thread(() -> {
            try {
                command.invoke(null, arguments, null);
            } catch (InvocationTargetException error) {
                error.getCause().printStackTrace(stream);
            } catch (IllegalAccessException error) {
                error.printStackTrace(stream);
            }
        }, "mqadmin");
        thread.setDaemon(true);
        thread.start();
        long endNs = System.nanoTime() + limitMs * 1_000_000;
        boolean isEnough = false;
        while (thread.isAlive() && !isEnough && System.nanoTime() < endNs) {
            thread.join(STEP_MS);
            hurryShutdown(thread);
            isEnough = enough != null && enough.matcher(text(printed)).find();
        }
        boolean isWhole = isEnough || !thread.isAlive();
        String output = text(printed);
        underWay = null;
        if (thread.isAlive()) {
            thread.interrupt();
            thread.join(limitMs);
        }
        answer("done", output, isWhole);
    }

    /** Wrong arguments make mqadmin end the JVM: report its output all the same. */
    private static void answerAtExit() {
        ByteArrayOutputStream printed = underWay;
        if (printed != null) {
            answer("ended", text(printed), true);
        }
    }

    /** Each command ends its client, and waits up to 3 s until a thread of it looks up: wake that. */
    private static void hurryShutdown(Thread thread) {
        boolean isEnding = Arrays.stream(thread.getStackTrace()).anyMatch(frame ->
            frame.getClassName().endsWith("ServiceThread") && frame.getMethodName().equals("shutdown"));
        if (isEnding) {
            Thread.getAllStackTraces().keySet().stream()
                .filter(each -> each.getName().contains("NettyEventExecutor"))
                .forEach(Thread::interrupt);
        }
    }

    private static String text(ByteArrayOutputStream printed) {
        return printed.toString(StandardCharsets.UTF_8);
    }

    private static void answer(String event, String printed, boolean isWhole) {
        Map<String, Object> facts = new LinkedHashMap<>();
        facts.put("admin", event);
        facts.put("printed", printed);
        facts.put("whole", isWhole);
        ANSWERS.println(Json.write(facts));
        ANSWERS.flush();
    }
}
