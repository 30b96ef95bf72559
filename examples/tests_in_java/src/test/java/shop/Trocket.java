package shop;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * A name server and a broker for the tests of this JVM, in memory and on free ports.
 *
 * They start when a test first asks for them, and end with the JVM, also when it is killed.
 */
final class Trocket {
    private static final Pattern NAME_SERVER = Pattern.compile("\"namesrv\": *\"([^\"]+)\"");
    private static String nameServer;

    private Trocket() {
    }

    /** The address of the name server, for setNamesrvAddr. */
    static synchronized String nameServer() throws IOException {
        if (nameServer == null) {
            nameServer = start();
        }
        return nameServer;
    }

    private static String start() throws IOException {
        String command = System.getenv().getOrDefault("TROCKET", "trocket");
        Process process = new ProcessBuilder(List.of(
                command, "up", "--memory", "--json", "--exit-with-parent",
                "--namesrv-port", "0", "--broker-port", "0", "--metrics-port", "0"))
            .redirectError(ProcessBuilder.Redirect.INHERIT)
            .start();
        BufferedReader output = new BufferedReader(
            new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8));
        String ready = output.readLine(); // one line of JSON when clients are served
        Matcher found = NAME_SERVER.matcher(ready == null ? "" : ready);
        if (!found.find()) {
            throw new IOException("trocket did not start; its output is above");
        }
        return found.group(1);
    }
}
