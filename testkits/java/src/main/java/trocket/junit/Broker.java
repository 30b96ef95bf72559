package trocket.junit;

import java.io.IOException;
import java.net.HttpURLConnection;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * A RocketMQ name server and broker whose time a test commands, in a process on this machine.
 *
 * <p>It is {@code trocket up --test-clock}: any RocketMQ client can use it. Its time is the
 * machine's until it is advanced. A client has the machine's time always, so count moments that
 * you give to the broker from {@link #now()}.
 *
 * <p>Every method that talks to the broker throws {@link BrokerException} if the broker has ended
 * (with the end of its log) or refuses a command. Threads may share a broker.
 */
public final class Broker implements AutoCloseable {
    /** Most answers take milliseconds, but there may be many messages due, or a busy machine. */
    private static final Duration ANSWER_LIMIT = Duration.ofSeconds(60);

    private final TrocketProcess process;
    private volatile boolean hasFaults;
    private final HttpClient http = HttpClient.newBuilder()
        .version(HttpClient.Version.HTTP_1_1).proxy(HttpClient.Builder.NO_PROXY).build();

    private Broker(TrocketProcess process) {
        this.process = process;
    }

    /**
     * Start a broker in memory, on free ports; it takes about a second.
     *
     * @param config lines of a broker.conf, such as {@code "enablePropertyFilter=true"}
     * @throws BrokerException the command {@code trocket} was not found, or the broker did not
     *     start; the text has its log
     */
    public static Broker start(String... config) {
        String command = System.getenv().getOrDefault(TrocketProcess.VARIABLE, "trocket");
        return new Broker(TrocketProcess.start(command, List.of(config)));
    }

    /** {@code host:port} of the name server, for {@code setNamesrvAddr}. */
    public String namesrvAddr() {
        return process.fact("namesrv");
    }

    /** {@code host:port} of the broker itself. */
    public String brokerAddr() {
        return process.fact("broker");
    }

    /** The broker's time. */
    public Instant now() {
        return time("GET", "/time", Map.of());
    }

    /**
     * Have time pass at once. When this returns, what became due is in its queues: delayed
     * messages, retries, messages whose invisible time is over. Open transactions are asked about
     * once for each call.
     *
     * @param by 0 to ten years, in whole milliseconds
     * @return the broker's time
     */
    public Instant advance(Duration by) {
        return time("POST", "/advance", Map.of("ms", by.toMillis()));
    }

    /** Advance to a moment, which must not be earlier than {@link #now()}. */
    public Instant set(Instant to) {
        return time("POST", "/set", Map.of("now_ms", to.toEpochMilli()));
    }

    /** Have the broker's time stand still; {@link #advance} and {@link #set} still move it. */
    public Instant freeze() {
        return time("POST", "/freeze", Map.of());
    }

    /** Have it go on from where it stands. */
    public Instant unfreeze() {
        return time("POST", "/unfreeze", Map.of());
    }

    /** Have the next requests of a code fail; returns the number of the fault. */
    public int fault(Fault fault) {
        hasFaults = true;
        return Integer.parseInt(Json.field(ask("POST", "/faults", fault.facts()), "id"));
    }

    /** How many requests a fault has affected; it may be used up, but not cleared. */
    public int hits(int fault) {
        String faults = ask("GET", "/faults", Map.of());
        Matcher found = Pattern.compile("\\{[^{}]*\"id\"\\s*:\\s*" + fault + "\\b[^{}]*}")
            .matcher(faults);
        if (!found.find()) {
            throw new BrokerException("there is no fault " + fault + ": it was cleared");
        }
        return Integer.parseInt(Json.field(found.group(), "hits"));
    }

    /** End a fault. */
    public void clearFault(int fault) {
        ask("DELETE", "/faults/" + fault, Map.of());
    }

    /** End all faults of requests; the disk stays as it is. */
    public void clearFaults() {
        ask("DELETE", "/faults", Map.of());
    }

    /** Whether the disk has no room: sends are refused until it has. */
    public void diskFull(boolean isFull) {
        disk(Map.of("full", isFull));
    }

    /** Whether each fsync of the commit log fails: after the first the store is read-only. */
    public void diskFailingFsync(boolean isFailing) {
        disk(Map.of("failing_fsync", isFailing));
    }

    /** How long each fsync of the commit log takes: 0 to 60 s of real time. */
    public void diskSlow(Duration by) {
        disk(Map.of("slow_ms", by.toMillis()));
    }

    /**
     * Have the broker end cleanly, and serve again with the same messages, addresses, faults and
     * time. Clients lose their connections, and make new ones by themselves.
     *
     * @return the broker's time
     */
    public Instant restart() {
        return time("POST", "/restart", Map.of());
    }

    /**
     * Have the power fail, and the broker serve again with what that leaves: messages that were not
     * synced are lost. With {@code flushDiskType=SYNC_FLUSH} each was that is confirmed.
     *
     * @return the broker's time
     */
    public Instant crash() {
        return time("POST", "/crash", Map.of());
    }

    /**
     * The same, or with {@code false} as after {@code kill -9}, which loses nothing that was
     * written.
     */
    public Instant crash(boolean powerLoss) {
        return time("POST", "/crash", Map.of("power_loss", powerLoss));
    }

    /**
     * Record what clients and the broker say from now on, also over a restart. A recording that
     * runs is forgotten.
     */
    public void record() {
        ask("POST", "/record", Map.of());
    }

    /**
     * End the recording and return it: a frame a line, as an object of JSON, as
     * {@code trocket interop record --json} writes them. Encrypted connections and those of gRPC
     * clients are left out.
     */
    public String stopRecording() {
        return ask("POST", "/stop-recording", Map.of());
    }

    /**
     * Send the requests of a recording again, each when all that was answered before it is answered
     * again. After 45 s the rest has no answer.
     */
    public List<Replayed> replay(String recording) {
        List<Replayed> all = new ArrayList<>();
        Matcher each = Pattern.compile("\\{[^{}]*\"request_code\"[^{}]*}")
            .matcher(send("POST", "/replay", recording));
        while (each.find()) {
            all.add(new Replayed(code(each.group(), "request_code"),
                code(each.group(), "recorded_code"), code(each.group(), "code")));
        }
        return all;
    }

    private static int code(String object, String key) {
        String value = Json.field(object, key);
        return value.equals("null") ? Replayed.NO_ANSWER : Integer.parseInt(value);
    }

    /** The last lines that the broker logged: warnings and errors. */
    public String log() {
        return process.log();
    }

    /** End the broker; its messages are gone. */
    @Override
    public void close() {
        process.close();
    }

    /** For the next test: no fault of requests or of the disk that this one set. */
    void mend() {
        if (hasFaults) {
            clearFaults();
            disk(Map.of("full", false, "failing_fsync", false, "slow_ms", 0));
            hasFaults = false;
        }
    }

    private void disk(Map<String, Object> state) {
        hasFaults = true;
        ask("POST", "/disk", state);
    }

    private Instant time(String method, String path, Map<String, Object> body) {
        return Instant.ofEpochMilli(Long.parseLong(Json.field(ask(method, path, body), "now_ms")));
    }

    private String ask(String method, String path, Map<String, Object> body) {
        return send(method, path, Json.write(body));
    }

    private String send(String method, String path, String body) {
        HttpRequest request = HttpRequest.newBuilder(URI.create(process.fact("control") + path))
            .method(method, HttpRequest.BodyPublishers.ofString(body))
            .timeout(ANSWER_LIMIT).build();
        HttpResponse<String> response;
        try {
            response = http.send(request, HttpResponse.BodyHandlers.ofString());
        } catch (IOException e) {
            throw new BrokerException(method + " " + path + ": " + process.whyNoAnswer(e), e);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new BrokerException(method + " " + path + " was interrupted", e);
        }
        if (response.statusCode() != HttpURLConnection.HTTP_OK) {
            throw new BrokerException(method + " " + path + " was refused with "
                + response.statusCode() + ": " + Json.field(response.body(), "error"));
        }
        return response.body();
    }
}
