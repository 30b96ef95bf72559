package trading;

/** One practice of the example. */
interface Part {
    /** What its lines begin with. */
    String name();

    /** Send everything, and start what consumes it. */
    void start() throws Exception;

    /** Wait until all that is expected came, or the run's time is over. */
    void await() throws InterruptedException;

    /** Say what came in the end, and what of it is wrong. */
    void report(Report report);
}
