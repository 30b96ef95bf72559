package trocket.filtersrv;

import java.io.DataInputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;

/** The pipes to the filter server. Their protocol is declared in `inside/frames.py`. */
final class Frames {
    static final int COMPILE = 2;
    static final int LOAD = 3;
    static final int BATCH = 4;
    static final int DONE = 18;
    static final int REFUSED = 19;
    static final int BITS = 20;
    static final int FAILED = 21;

    private static final int HEAD_SIZE = 9;
    private static final int TEXT_BYTES_MAX = 4096;

    private final DataInputStream requests;
    private final OutputStream answers;
    private int kind;
    private int number;

    Frames(DataInputStream requests, OutputStream answers) {
        this.requests = requests;
        this.answers = answers;
    }

    /** The content of the next frame, or null: the filter server has ended. */
    ByteBuffer read() throws IOException {
        try {
            kind = requests.readUnsignedByte();
        } catch (EOFException end) {
            return null;
        }
        number = requests.readInt();
        byte[] content = new byte[requests.readInt()];
        requests.readFully(content);
        return ByteBuffer.wrap(content);
    }

    /** The kind of the frame that was read last. */
    int kind() {
        return kind;
    }

    /** Answer a request. */
    void answer(int answerKind, int requestNumber, byte[] content) throws IOException {
        byte[] frame = ByteBuffer.allocate(HEAD_SIZE + content.length)
            .put((byte) answerKind).putInt(requestNumber).putInt(content.length).put(content)
            .array();
        answers.write(frame);
    }

    /** Answer with a text, cut where it is too long. */
    void answer(int answerKind, int requestNumber, String text) throws IOException {
        byte[] content = text.getBytes(StandardCharsets.UTF_8);
        answer(answerKind, requestNumber, Arrays.copyOf(content, Math.min(content.length, TEXT_BYTES_MAX)));
    }

    /** The number of the request read last. */
    int number() {
        return number;
    }

    /** The class name at the beginning of a request. */
    static String takeName(ByteBuffer content) {
        return new String(take(content, content.getShort() & 0xFFFF), StandardCharsets.UTF_8);
    }

    /** The next bytes. */
    static byte[] take(ByteBuffer content, int size) {
        byte[] taken = new byte[size];
        content.get(taken);
        return taken;
    }

    /** Classes by name, to the content's end. */
    static Map<String, byte[]> takeClasses(ByteBuffer content) {
        Map<String, byte[]> classes = new LinkedHashMap<>();
        while (content.hasRemaining()) {
            int nameSize = content.getShort() & 0xFFFF;
            int classSize = content.getInt();
            String name = new String(take(content, nameSize), StandardCharsets.UTF_8);
            classes.put(name, take(content, classSize));
        }
        return classes;
    }

    /** The reverse of takeClasses. */
    static byte[] packClasses(Map<String, byte[]> classes) {
        int size = 0;
        for (Map.Entry<String, byte[]> each : classes.entrySet()) {
            size += 2 + 4 + each.getKey().getBytes(StandardCharsets.UTF_8).length + each.getValue().length;
        }
        ByteBuffer content = ByteBuffer.allocate(size);
        for (Map.Entry<String, byte[]> each : classes.entrySet()) {
            byte[] name = each.getKey().getBytes(StandardCharsets.UTF_8);
            content.putShort((short) name.length).putInt(each.getValue().length).put(name).put(each.getValue());
        }
        return content.array();
    }
}
