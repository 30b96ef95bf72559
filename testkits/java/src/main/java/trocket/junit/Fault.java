package trocket.junit;

import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * What shall go wrong with the next requests of a code, for {@link Broker#fault}.
 *
 * <p>Codes are those of {@code org.apache.rocketmq.remoting.protocol.RequestCode}: a send of the
 * Java client is {@code SEND_MESSAGE_V2}, 310. A fault applies to one request, unless {@link #times}
 * or {@link #always} says otherwise.
 */
public final class Fault {
    private final Map<String, Object> facts;

    private Fault(Map<String, Object> facts) {
        this.facts = facts;
    }

    private static Fault of(String kind, int code) {
        return new Fault(Map.of("kind", kind)).with("code", code).times(1);
    }

    /** The request is processed, and its answer never leaves. */
    public static Fault drop(int code) {
        return of("drop", code);
    }

    /** The request is answered later, in real time; up to the limits of the control port. */
    public static Fault delay(int code, Duration by) {
        return of("delay", code).with("delay_ms", by.toMillis());
    }

    /** The answer is sent twice. */
    public static Fault duplicate(int code) {
        return of("duplicate", code);
    }

    /** The request is not processed: its answer has this code and remark. */
    public static Fault answer(int code, int answerCode, String remark) {
        return of("answer", code).with("answer_code", answerCode).with("remark", remark);
    }

    /** The connection of the request is closed. */
    public static Fault disconnect(int code) {
        return of("disconnect", code);
    }

    /** The request is neither processed nor answered. */
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

    Map<String, Object> facts() {
        return facts;
    }

    private Fault with(String key, Object value) {
        Map<String, Object> more = new LinkedHashMap<>(facts);
        more.put(key, value);
        return new Fault(more);
    }
}
