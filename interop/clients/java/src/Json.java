import java.util.Map;

/** Writes facts as JSON: maps, iterables, numbers, booleans and texts, in ASCII on one line. */
final class Json {
    private Json() {
    }

    /** Print a line whole, whatever other threads print. */
    static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    static String write(Object value) {
        StringBuilder text = new StringBuilder();
        append(text, value);
        return text.toString();
    }

    private static void append(StringBuilder text, Object value) {
        if (value instanceof Map<?, ?> map) {
            String before = "{";
            for (Map.Entry<?, ?> entry : map.entrySet()) {
                append(text.append(before), String.valueOf(entry.getKey()));
                append(text.append(':'), entry.getValue());
                before = ",";
            }
            text.append(map.isEmpty() ? "{}" : "}");
        } else if (value instanceof Iterable<?> items) {
            String before = "";
            text.append('[');
            for (Object item : items) {
                append(text.append(before), item);
                before = ",";
            }
            text.append(']');
        } else if (value == null || value instanceof Number || value instanceof Boolean) {
            text.append(value);
        } else {
            quote(text, value.toString());
        }
    }

    private static void quote(StringBuilder text, String value) {
        text.append('"');
        for (char letter : value.toCharArray()) {
            if (letter >= ' ' && letter < 127 && letter != '"' && letter != '\\') {
                text.append(letter);
            } else {
                text.append(String.format("\\u%04x", (int) letter));
            }
        }
        text.append('"');
    }
}
