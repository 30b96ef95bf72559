package trocket.junit;

import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;

/** As much of JSON as the control port needs, so that the kit needs no library. */
final class Json {
    private static final Pattern ESCAPE = Pattern.compile("\\\\(?:u([0-9a-fA-F]{4})|(.))");

    /** What follows a key: a string, or another value. */
    private static final String VALUE =
        "\"\\s*:\\s*(?:\"((?:[^\"\\\\]|\\\\.)*)\"|([^,\\s}\\]]+))";

    private Json() {
    }

    /** An object of strings, numbers, booleans and nulls. */
    static String write(Map<String, ?> object) {
        return object.entrySet().stream().map(each -> quoted(each.getKey()) + ": "
                + (each.getValue() instanceof String text ? quoted(text) : each.getValue()))
            .collect(Collectors.joining(", ", "{", "}"));
    }

    private static String quoted(String text) {
        StringBuilder out = new StringBuilder("\"");
        for (char each : text.toCharArray()) {
            boolean isPlain = each >= ' ' && each < 127 && each != '"' && each != '\\';
            out.append(isPlain ? each : String.format("\\u%04x", (int) each));
        }
        return out.append('"').toString();
    }

    /**
     * A field of an object without inner objects, as text.
     *
     * @throws BrokerException there is no such field
     */
    static String field(String object, String key) {
        Matcher found = Pattern.compile("\"" + key + VALUE).matcher(object);
        if (!found.find()) {
            throw new BrokerException("trocket answered without \"" + key + "\": " + object
                + "; is it of the same version as the test kit?");
        }
        return found.group(1) == null ? found.group(2) : ESCAPE.matcher(found.group(1)).replaceAll(
            escape -> Matcher.quoteReplacement(escape.group(1) == null ? plain(escape.group(2))
                : "" + (char) Integer.parseInt(escape.group(1), 16)));
    }

    private static String plain(String letter) {
        int known = "bfnrt".indexOf(letter);
        return known < 0 ? letter : "\b\f\n\r\t".substring(known, known + 1);
    }
}
