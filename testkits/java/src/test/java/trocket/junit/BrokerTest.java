package trocket.junit;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.net.Socket;
import java.net.SocketException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Scanner;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.MethodOrderer;
import org.junit.jupiter.api.Nested;
import org.junit.jupiter.api.Order;
import org.junit.jupiter.api.RepeatedTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestMethodOrder;

@RocketMQ
class BrokerTest {
    private static final String COMMAND =
        System.getenv().getOrDefault(TrocketProcess.VARIABLE, "trocket");
    private static final Set<Broker> SEEN = new HashSet<>();
    private static int faultOfAnEarlierTest;
    private final Broker broker;

    BrokerTest(Broker broker) {
        this.broker = broker;
    }

    @Test
    void timePassesAsTheTestSays() {
        Instant start = broker.freeze();
        assertEquals(start, broker.now());
        assertEquals(start.plus(Duration.ofHours(2)), broker.advance(Duration.ofHours(2)));
        Instant tomorrow = start.plus(Duration.ofDays(1));
        assertEquals(tomorrow, broker.set(tomorrow));
        BrokerException refused =
            assertThrows(BrokerException.class, () -> broker.set(tomorrow.minusMillis(1)));
        assertTrue(refused.getMessage().contains("409"), refused.getMessage());
        assertFalse(broker.unfreeze().isBefore(tomorrow));
    }

    @Test
    void aMethodGetsTheBrokerOfItsClass(Broker same) {
        assertEquals(broker, same);
    }

    @Nested
    class Inside {
        @Test
        void aNestedClassHasTheSame(Broker same) {
            assertEquals(broker, same);
        }
    }

    @Nested
    @RocketMQ(per = RocketMQ.Per.METHOD)
    class PerMethod {
        private Broker own;

        @BeforeEach
        void take(Broker broker) {
            own = broker;
        }

        @RepeatedTest(2)
        void aTestHasABrokerForItself(Broker same) {
            assertEquals(own, same);
            assertTrue(SEEN.add(own));
            assertFalse(SEEN.contains(broker));
        }
    }

    @Nested
    @TestMethodOrder(MethodOrderer.OrderAnnotation.class)
    class Faults {
        @Test
        @Order(1)
        void aTestSetsThem() {
            faultOfAnEarlierTest = broker.fault(Fault.hang(Fault.ANY).always());
            broker.diskFull(true);
            assertEquals(0, broker.hits(faultOfAnEarlierTest));
        }

        @Test
        @Order(2)
        void theNextOneHasNone() {
            assertThrows(BrokerException.class, () -> broker.hits(faultOfAnEarlierTest));
        }
    }

    /** A test run that starts a broker, prints its process id and is killed. */
    static final class Killed {
        public static void main(String[] words) throws InterruptedException {
            System.out.println(TrocketProcess.start(COMMAND, List.of()).fact("pid"));
            Thread.sleep(Long.MAX_VALUE);
        }
    }

    @Test
    void aBrokerEndsWithAJvmThatIsKilled() throws Exception {
        Process run = new ProcessBuilder(
                Path.of(System.getProperty("java.home"), "bin", "java").toString(), "-Xmx64m", "-cp",
                System.getProperty("java.class.path"), Killed.class.getName())
            .redirectError(ProcessBuilder.Redirect.INHERIT).start();
        ProcessHandle started;
        try (Scanner output = new Scanner(run.getInputStream())) {
            started = ProcessHandle.of(output.nextLong()).orElseThrow();
        } finally {
            run.destroyForcibly();
        }
        started.onExit().get(60, TimeUnit.SECONDS);
    }

    @Test
    void aCommandThatIsMissingIsNamed() {
        BrokerException error = assertThrows(BrokerException.class,
            () -> TrocketProcess.start("/no/such/trocket", List.of()));
        assertTrue(error.getMessage().contains("cannot run /no/such/trocket"));
        assertTrue(error.getMessage().contains("TROCKET"));
    }

    @Test
    void aStartThatFailsSaysWhy() {
        BrokerException error = assertThrows(BrokerException.class,
            () -> TrocketProcess.start(COMMAND, List.of("brokerNmae=a")));
        assertTrue(error.getMessage().contains("exit status 2"), error.getMessage());
        assertTrue(error.getMessage().contains("brokerName"), error.getMessage());
    }

    @Test
    void aBrokerThatIsGoneIsNamed() {
        Broker gone = Broker.start();
        gone.close();
        BrokerException error = assertThrows(BrokerException.class, gone::now);
        assertTrue(error.getMessage().contains("trocket is gone: exit status 0"),
            error.getMessage());
    }

    @Test
    void faultsAreListedUntilTheyAreCleared() {
        int fault = broker.fault(Fault.answer(310, 2, "\"not\" now \u00e9\n").times(3));
        int other = broker.fault(Fault.delay(Fault.ANY, Duration.ofMillis(1)).always().atNamesrv());
        assertEquals(0, broker.hits(fault));
        broker.clearFault(other);
        assertThrows(BrokerException.class, () -> broker.hits(other));
        broker.clearFaults();
        assertThrows(BrokerException.class, () -> broker.hits(fault));
        BrokerException refused = assertThrows(BrokerException.class,
            () -> broker.fault(Fault.drop(310).times(0)));
        assertTrue(refused.getMessage().contains("refused with 400: the body is wrong"),
            refused.getMessage());
    }

    /** A client of one request, GET_BROKER_RUNTIME_INFO. */
    private static final class Client implements AutoCloseable {
        private static final int CODE = 28;
        private final Socket socket;

        Client(Broker broker) throws IOException {
            String[] address = broker.brokerAddr().split(":");
            socket = new Socket(address[0], Integer.parseInt(address[1]));
            socket.setSoTimeout((int) TimeUnit.SECONDS.toMillis(60));
        }

        /** Whether the request is answered; otherwise the connection has ended. */
        boolean ask() throws IOException {
            byte[] header = "{\"code\": 28, \"opaque\": 7}".getBytes(StandardCharsets.UTF_8);
            DataOutputStream out = new DataOutputStream(socket.getOutputStream());
            out.write(ByteBuffer.allocate(8 + header.length).putInt(4 + header.length)
                .putInt(header.length).put(header).array());
            DataInputStream in = new DataInputStream(socket.getInputStream());
            try {
                return in.readNBytes(in.readInt()).length > 0;
            } catch (EOFException | SocketException e) {
                return false;
            }
        }

        @Override
        public void close() throws IOException {
            socket.close();
        }
    }

    @Test
    void aBrokerIsRestartedAndCrashes() throws IOException {
        Instant now = broker.freeze();
        List<Supplier<Instant>> ends =
            List.of(broker::restart, broker::crash, () -> broker.crash(false));
        for (Supplier<Instant> end : ends) {
            try (Client before = new Client(broker)) {
                assertTrue(before.ask());
                assertEquals(now, end.get());
                assertFalse(before.ask());
            }
            try (Client after = new Client(broker)) {
                assertTrue(after.ask());
            }
        }
        broker.unfreeze();
    }

    @Test
    void aRecordingIsReplayed() throws IOException {
        broker.record();
        try (Client client = new Client(broker)) {
            assertTrue(client.ask());
            broker.fault(Fault.answer(Client.CODE, 2, "busy"));
            assertTrue(client.ask());
        }
        String recording = broker.stopRecording();
        assertEquals(4, recording.lines().count(), recording);
        broker.fault(Fault.disconnect(Client.CODE));
        assertEquals(List.of(new Replayed(Client.CODE, 0, Replayed.NO_ANSWER),
            new Replayed(Client.CODE, 2, 0)), broker.replay(recording));
        BrokerException refused = assertThrows(BrokerException.class, broker::stopRecording);
        assertTrue(refused.getMessage().contains("409: nothing is recorded"), refused.getMessage());
        refused = assertThrows(BrokerException.class, () -> broker.replay("hello"));
        assertTrue(refused.getMessage().contains("400: line 1"), refused.getMessage());
    }

    @Test
    void jsonIsReadAndWritten() {
        String text = "{\"a\" : -25, \"b\": true,\n\"c\": \"\\\"\\u00e9\\n\\\\$1\"}";
        assertEquals("-25", Json.field(text, "a"));
        assertEquals("true", Json.field(text, "b"));
        assertEquals("\"\u00e9\n\\$1", Json.field(text, "c"));
        BrokerException error =
            assertThrows(BrokerException.class, () -> Json.field(text, "control"));
        assertTrue(error.getMessage().contains("without \"control\""));
        assertEquals("{\"c\": \"\\u0022\\u00e9\\u000a\"}", Json.write(Map.of("c", "\"\u00e9\n")));
    }
}
