package trocket.junit;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Consumer;

/** The child process {@code trocket up --test-clock}. */
final class TrocketProcess {
    /** The environment variable with the command, if it is not {@code trocket} in PATH. */
    static final String VARIABLE = "TROCKET";
    /** A start takes about a second; a machine that compiles beside it may need long. */
    private static final long START_LIMIT_S = 120;
    /** A stop takes a tenth of a second. */
    private static final long STOP_LIMIT_S = 20;
    /** A failed start logs one line, or a traceback. */
    private static final int LOG_LINES_MAX = 100;

    private final Process process;
    private final Deque<String> log = new ArrayDeque<>();
    private final CompletableFuture<String> ready = new CompletableFuture<>();
    private final Thread logReader;

    private TrocketProcess(Process process) {
        this.process = process;
        // One line of JSON when clients are served; the end of the output if it did not start.
        read("trocket-output", process.getInputStream(), line -> {
            if (line.startsWith("{")) { // a wrapper of the command may print before it
                ready.complete(line);
            }
        });
        logReader = read("trocket-log", process.getErrorStream(), this::keep);
    }

    /**
     * Start it, and wait until it serves clients.
     *
     * @param command its name or path
     * @param config lines of a broker.conf
     * @throws BrokerException it did not start
     */
    static TrocketProcess start(String command, List<String> config) {
        List<String> words = new ArrayList<>(List.of(
            command, "up", "--test-clock", "--memory", "--json", "--exit-with-parent",
            "--namesrv-port", "0", "--broker-port", "0", "--metrics-port", "0"));
        try {
            Path file = Files.createTempFile("trocket", ".conf");
            try {
                Files.write(file, config);
                words.addAll(List.of("-c", file.toString()));
                TrocketProcess started = new TrocketProcess(launch(words));
                started.awaitReady();
                return started;
            } finally {
                Files.delete(file);
            }
        } catch (IOException e) {
            throw new UncheckedIOException("the file with the broker's configuration", e);
        }
    }

    private static Process launch(List<String> words) {
        try {
            return new ProcessBuilder(words).start();
        } catch (IOException e) {
            throw new BrokerException("cannot run " + words.get(0) + ": install trocket "
                + "(pip install 'trocket[broker]') so that its command is in PATH, or name the "
                + "command by the environment variable " + VARIABLE, e);
        }
    }

    private void awaitReady() {
        try {
            CompletableFuture.anyOf(ready, process.onExit()).get(START_LIMIT_S, TimeUnit.SECONDS);
            ready.completeExceptionally(new IOException("it ended"));
            ready.get();
        } catch (ExecutionException e) {
            throw new BrokerException("trocket did not start: " + ending(), e);
        } catch (TimeoutException e) {
            process.destroyForcibly();
            throw new BrokerException("trocket was not ready after " + START_LIMIT_S
                + " s; its log:\n" + log(), e);
        } catch (InterruptedException e) {
            process.destroyForcibly();
            Thread.currentThread().interrupt();
            throw new BrokerException("the start of trocket was interrupted", e);
        }
    }

    /** A fact of the line that it printed when it was ready, such as "namesrv". */
    String fact(String key) {
        return Json.field(ready.join(), key);
    }

    /** The last lines that it logged. */
    String log() {
        synchronized (log) {
            return String.join("\n", log);
        }
    }

    /** Why a request got no answer. */
    String whyNoAnswer(IOException error) {
        return process.isAlive() ? "no answer (" + error + ")" : "trocket is gone: " + ending();
    }

    void close() {
        process.destroy(); // SIGTERM
        try {
            if (!process.waitFor(STOP_LIMIT_S, TimeUnit.SECONDS)) {
                process.destroyForcibly();
            }
        } catch (InterruptedException e) {
            process.destroyForcibly();
            Thread.currentThread().interrupt();
        }
    }

    /** Its exit status and its log; it has ended or is about to. */
    private String ending() {
        try {
            process.waitFor(STOP_LIMIT_S, TimeUnit.SECONDS);
            logReader.join(TimeUnit.SECONDS.toMillis(1)); // its last lines may be on their way
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        String status = process.isAlive() ? "it runs" : "exit status " + process.exitValue();
        return status + "; its log:\n" + log();
    }

    private void keep(String line) {
        synchronized (log) {
            log.addLast(line);
            if (log.size() > LOG_LINES_MAX) {
                log.removeFirst();
            }
        }
    }

    private static Thread read(String name, InputStream from, Consumer<String> take) {
        Thread thread = new Thread(() -> {
            try (BufferedReader lines = new BufferedReader(
                    new InputStreamReader(from, StandardCharsets.UTF_8))) {
                lines.lines().forEach(take);
            } catch (IOException | UncheckedIOException e) {
                take.accept("its output cannot be read: " + e);
            }
        }, name);
        thread.setDaemon(true);
        thread.start();
        return thread;
    }
}
