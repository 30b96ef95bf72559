import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Predicate;

/** The items received so far, in order; waiting has a deadline. Thread-safe. */
final class Inbox<T> {
    private static final long DEADLINE_NS = TimeUnit.SECONDS.toNanos(60);

    private final List<T> items = new ArrayList<>();

    synchronized void put(T item) {
        items.add(item);
        notifyAll();
    }

    synchronized List<T> all() {
        return new ArrayList<>(items);
    }

    /** All items, once there are at least `count`; throws TimeoutException. */
    List<T> await(int count) throws InterruptedException, TimeoutException {
        return await(all -> all.size() >= count);
    }

    synchronized List<T> await(Predicate<List<T>> enough)
        throws InterruptedException, TimeoutException {
        long end = System.nanoTime() + DEADLINE_NS;
        while (!enough.test(items)) {
            long rest = end - System.nanoTime();
            if (rest <= 0) {
                throw new TimeoutException("only " + items.size() + " came: " + items);
            }
            TimeUnit.NANOSECONDS.timedWait(this, rest);
        }
        return all();
    }
}
