package trocket.junit;

/**
 * A request of a recording that was sent again, from {@link Broker#replay}. Codes are those of
 * RocketMQ's {@code RequestCode} and {@code ResponseCode}.
 *
 * @param requestCode of the request
 * @param recordedCode of the recorded answer, or {@link #NO_ANSWER}
 * @param code of the answer now, or {@link #NO_ANSWER}
 */
public record Replayed(int requestCode, int recordedCode, int code) {
    /** In place of the code of an answer that did not come. */
    public static final int NO_ANSWER = -1;
}
