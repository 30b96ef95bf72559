package trocket.junit;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** The JSON of the control port: a reader and a writer of maps, so that the kit needs no library. */
final class Json {
    private final String text;
    private int at;

    private Json(String text) {
        this.text = text;
    }

    /** A map, a list, a String, a Long, a Double, a Boolean or null. */
    static Object read(String text) {
        Json reader = new Json(text);
        try {
            Object value = reader.value();
            if (reader.peek() == 0) {
                return value;
            }
        } catch (IndexOutOfBoundsException | NumberFormatException e) {
            throw new IllegalArgumentException("no JSON: " + text, e);
        }
        throw new IllegalArgumentException("no JSON: " + text);
    }

    /** An object of strings, numbers, booleans and nulls. */
    static String write(Map<String, ?> object) {
        List<String> fields = new ArrayList<>();
        object.forEach((key, value) -> fields.add(quoted(key) + ": "
            + (value instanceof String words ? quoted(words) : String.valueOf(value))));
        return "{" + String.join(", ", fields) + "}";
    }

    private static String quoted(String words) {
        StringBuilder out = new StringBuilder("\"");
        for (char each : words.toCharArray()) {
            boolean isPlain = each >= ' ' && each < 127 && each != '"' && each != '\\';
            out.append(isPlain ? each : String.format("\\u%04x", (int) each));
        }
        return out.append('"').toString();
    }

    /** The next character that is not a space; 0 at the end. */
    private char peek() {
        while (at < text.length() && Character.isWhitespace(text.charAt(at))) {
            at++;
        }
        return at < text.length() ? text.charAt(at) : 0;
    }

    private boolean takes(char wanted) {
        boolean isThere = peek() == wanted;
        at += isThere ? 1 : 0;
        return isThere;
    }

    private void need(char wanted) {
        if (!takes(wanted)) {
            throw new IndexOutOfBoundsException(at);
        }
    }

    private Object value() {
        if (takes('{')) {
            Map<String, Object> object = new LinkedHashMap<>();
            while (!takes('}')) {
                takes(',');
                need('"');
                String key = string();
                need(':');
                object.put(key, value());
            }
            return object;
        }
        if (takes('[')) {
            List<Object> list = new ArrayList<>();
            while (!takes(']')) {
                takes(',');
                list.add(value());
            }
            return list;
        }
        return takes('"') ? string() : word();
    }

    private Object word() {
        int start = at;
        while (at < text.length() && ",]} \r\n\t".indexOf(text.charAt(at)) < 0) {
            at++;
        }
        String word = text.substring(start, at);
        return switch (word) {
            case "true", "false" -> Boolean.valueOf(word);
            case "null" -> null;
            default -> word.matches("-?\\d+") ? (Object) Long.valueOf(word) : Double.valueOf(word);
        };
    }

    private String string() {
        StringBuilder out = new StringBuilder();
        for (char each = text.charAt(at++); each != '"'; each = text.charAt(at++)) {
            out.append(each == '\\' ? escaped() : each);
        }
        return out.toString();
    }

    private char escaped() {
        char each = text.charAt(at++);
        if (each == 'u') {
            at += 4;
            return (char) Integer.parseInt(text.substring(at - 4, at), 16);
        }
        int known = "bfnrt".indexOf(each);
        return known < 0 ? each : "\b\f\n\r\t".charAt(known);
    }
}
