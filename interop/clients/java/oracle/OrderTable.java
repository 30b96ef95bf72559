import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * The table of messages that were popped in order from T by G: steps on an empty one, or on that of a
 * file. By reflection, because 4.9.7 has no such class.
 */
final class OrderTable {
    private static final String TOPIC = "T";
    private static final String GROUP = "G";

    private final Class<?> kind;
    private final Object table;

    private OrderTable() throws Exception {
        kind = Class.forName("org.apache.rocketmq.broker.pop.orderly.QueueLevelConsumerManager");
        table = kind.getConstructor().newInstance();
    }

    static Object run(JSONObject question) throws Exception {
        OrderTable table = new OrderTable();
        if (question.getString("text") != null) {
            table.call("decode", new Class<?>[] {String.class}, question.getString("text"));
        }
        List<Object> results = new ArrayList<>();
        for (Object step : question.getJSONArray("steps")) {
            results.add(table.step((JSONObject) step));
        }
        Map<String, Object> found = new LinkedHashMap<>();
        found.put("results", results);
        found.put("text", table.call("encode", new Class<?>[] {boolean.class}, true));
        return found;
    }

    private Object step(JSONObject step) throws Exception {
        String attempt = step.getString("attempt");
        int queue = step.getIntValue("queue");
        long offset = step.getLongValue("offset");
        long popTime = step.getLongValue("pop_time");
        long invisible = step.getLongValue("invisible");
        switch (step.getString("do")) {
            case "pop":
                StringBuilder counts = new StringBuilder();
                call(
                    "update",
                    new Class<?>[] {
                        String.class, boolean.class, String.class, String.class, int.class,
                        long.class, long.class, List.class, StringBuilder.class,
                    },
                    attempt, false, TOPIC, GROUP, queue, popTime, invisible,
                    longs(step.getJSONArray("offsets")), counts);
                return counts.toString();
            case "blocked":
                return call(
                    "checkBlock",
                    new Class<?>[] {
                        String.class, String.class, String.class, int.class, long.class,
                    },
                    attempt, TOPIC, GROUP, queue, invisible);
            case "ack":
                return call(
                    "commitAndNext",
                    new Class<?>[] {
                        String.class, String.class, int.class, long.class, long.class,
                    },
                    TOPIC, GROUP, queue, offset, popTime);
            case "change":
                return call(
                    "updateNextVisibleTime",
                    new Class<?>[] {
                        String.class, String.class, int.class, long.class, long.class, long.class,
                    },
                    TOPIC, GROUP, queue, offset, popTime, step.getLongValue("visible"));
            default:
                throw new IllegalArgumentException("no step " + step.getString("do"));
        }
    }

    private Object call(String name, Class<?>[] types, Object... arguments) throws Exception {
        return kind.getMethod(name, types).invoke(table, arguments);
    }

    private static List<Long> longs(JSONArray numbers) {
        List<Long> found = new ArrayList<>();
        for (int i = 0; i < numbers.size(); i++) {
            found.add(numbers.getLong(i));
        }
        return found;
    }
}
