package trading;

import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;

/** What an account has, and for which orders money is held. Stands for a database. */
final class AccountBook {
    private final Map<String, Integer> balances = new TreeMap<>();
    private final Set<String> held = new HashSet<>();

    AccountBook(Map<String, Integer> balances) {
        this.balances.putAll(balances);
    }

    /** Take the money for an order off the account; false, and nothing is done, without enough. */
    synchronized boolean hold(String order, String account, int amount) {
        int rest = balances.get(account) - amount;
        if (rest < 0) {
            return false;
        }
        balances.put(account, rest);
        held.add(order);
        return true;
    }

    synchronized boolean isHeld(String order) {
        return held.contains(order);
    }

    synchronized Map<String, Integer> balances() {
        return new TreeMap<>(balances);
    }
}
