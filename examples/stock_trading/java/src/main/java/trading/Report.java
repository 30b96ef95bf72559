package trading;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.stream.Collectors;

/** The results of all parts: facts, and what should have been otherwise. */
final class Report {
    private final Map<String, Object> facts = new LinkedHashMap<>();
    private final List<String> failures = new ArrayList<>();

    /** Print one line of one part at once. */
    static void say(String part, String text) {
        System.out.printf("%-13s %s%n", part, text);
    }

    void fact(String name, Object value) {
        facts.put(name, value);
    }

    /** A fact that must have a certain value. */
    void mustBe(String name, Object expected, Object value) {
        fact(name, value);
        if (!Objects.equals(expected, value)) {
            fail(name + " must be " + json(expected) + " and is " + json(value));
        }
    }

    void fail(String text) {
        failures.add(text);
    }

    List<String> failures() {
        return failures;
    }

    String json() {
        Map<String, Object> all = new LinkedHashMap<>(facts);
        all.put("failures", failures);
        return json(all);
    }

    private static String json(Object value) {
        if (value instanceof Map<?, ?> map) {
            return map.entrySet().stream()
                .map(entry -> json(entry.getKey()) + ": " + json(entry.getValue()))
                .collect(Collectors.joining(", ", "{", "}"));
        }
        if (value instanceof List<?> list) {
            return list.stream().map(Report::json).collect(Collectors.joining(", ", "[", "]"));
        }
        if (value == null || value instanceof Number || value instanceof Boolean) {
            return String.valueOf(value);
        }
        return '"' + escaped(value.toString()) + '"';
    }

    private static String escaped(String text) {
        return text.chars()
            .mapToObj(letter -> letter < ' ' || letter == '"' || letter == '\\'
                ? String.format("\\u%04x", letter) : String.valueOf((char) letter))
            .collect(Collectors.joining());
    }
}
