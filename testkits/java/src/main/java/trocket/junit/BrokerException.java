package trocket.junit;

/** A broker did not start, has ended, or refused a command. The text says why and what to do. */
public final class BrokerException extends RuntimeException {
    private static final long serialVersionUID = 1;

    BrokerException(String text, Throwable cause) {
        super(text, cause);
    }

    BrokerException(String text) {
        super(text);
    }
}
