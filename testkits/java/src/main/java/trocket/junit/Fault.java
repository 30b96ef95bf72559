package trocket.junit;

import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * What goes wrong with the next request of a code, for {@link Broker#fault}.
 *
 * <p>Codes are those of {@code org.apache.rocketmq.remoting.protocol.RequestCode}, or
 * {@link #ANY}: a send of the Java client is {@code SEND_MESSAGE_V2}, 310. A fault affects one
 * request of a client of the broker, unless {@link #times}, {@link #always} or {@link #atNamesrv}
 * says otherwise.
 */
public final class Fault {
    /** In place of a code: requests of all codes. */
    public static final int ANY = -1;

    private final Map<String, Object> facts;

    private Fault(Map<String, Object> facts) {
        this.facts = facts;
    }

    private static Fault of(String kind, int code) {
        Fault fault = new Fault(Map.of("kind", kind));
        return code == ANY ? fault : fault.with("code", code);
    }

    /** The request is processed, but its answer is not sent: was the message stored or not? */
    public static Fault drop(int code) {
        return of("drop", code);
    }

    /** The request is neither processed nor answered. */
    public static Fault swallow(int code) {
        return of("swallow", code);
    }

    /** The request is processed and answered later: 0 to 10 minutes of real time. */
    public static Fault delay(int code, Duration by) {
        return of("delay", code).with("delay_ms", by.toMillis());
    }

    /** The request is processed once and answered twice. */
    public static Fault duplicate(int code) {
        return of("duplicate", code);
    }

    /** The request is refused with a code of {@code ResponseCode}; it is not processed. */
    public static Fault answer(int code, int answerCode, String remark) {
        return of("answer", code).with("answer_code", answerCode).with("remark", remark);
    }

    /**
     * The request is processed, and its answer has another code of {@code ResponseCode}: after
     * {@code FLUSH_SLAVE_TIMEOUT} a message is stored, as by a master whose slaves lag.
     */
    public static Fault change(int code, int answerCode, String remark) {
        return of("change", code).with("answer_code", answerCode).with("remark", remark);
    }

    /** The connection of the request is closed; it is not processed. */
    public static Fault disconnect(int code) {
        return of("disconnect", code);
    }

    /** The request is processed and answered when the fault is cleared; connections stay open. */
    public static Fault hang(int code) {
        return of("hang", code);
    }

    /** The same fault for this number of requests, 1 or more. */
    public Fault times(int count) {
        return with("times", count);
    }

    /** The same fault for all requests until it is cleared. */
    public Fault always() {
        return with("times", null);
    }

    /** The same fault for requests to the name server. */
    public Fault atNamesrv() {
        return with("server", "namesrv");
    }

    Map<String, Object> facts() {
        return facts;
    }

    private Fault with(String key, Object value) {
        Map<String, Object> more = new LinkedHashMap<>(facts);
        more.put(key, value);
        return new Fault(more);
    }
}
