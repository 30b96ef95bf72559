package trocket.filtersrv;

/** A source or a class is not a filter; the text is for its author. */
final class Refusal extends Exception {
    private static final long serialVersionUID = 1L;

    Refusal(String text) {
        super(text);
    }
}
