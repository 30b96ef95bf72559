package trocket.filtersrv;

import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.FileDescriptor;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.common.filter.FilterContext;
import org.apache.rocketmq.common.filter.MessageFilter;
import org.apache.rocketmq.common.message.MessageExt;

/** Answers the filter server: compiles a class, or loads one and calls it with messages. */
public final class Worker {
    /** The pipes, see `inside/launcher.py`. */
    private static final int REQUESTS = 3;
    private static final int ANSWERS = 4;
    private static final int BUFFER_SIZE = 65536;

    private final Frames frames;
    private MessageFilter filter;

    private Worker(Frames frames) {
        this.frames = frames;
    }

    public static void main(String[] arguments) throws ReflectiveOperationException {
        InputStream requests = new FileInputStream(descriptor(REQUESTS));
        Frames frames = new Frames(
            new DataInputStream(new BufferedInputStream(requests, BUFFER_SIZE)),
            new FileOutputStream(descriptor(ANSWERS)));
        PrintStream nowhere = new PrintStream(OutputStream.nullOutputStream());
        System.setOut(nowhere);
        System.setErr(nowhere);
        int status = 0;
        try {
            new Worker(frames).serve();
        } catch (Throwable failure) {
            writeToStderr(failure);
            status = 1;
        }
        // Do not wait for threads of the filter.
        Runtime.getRuntime().halt(status);
    }

    /** The filter server reads standard error after the process has ended. */
    private static void writeToStderr(Throwable failure) {
        try {
            new FileOutputStream(FileDescriptor.err).write(describe(failure).getBytes(StandardCharsets.UTF_8));
        } catch (IOException full) {
            // It has been written to before.
        }
    }

    private static FileDescriptor descriptor(int number) throws ReflectiveOperationException {
        FileDescriptor descriptor = new FileDescriptor();
        Field field = FileDescriptor.class.getDeclaredField("fd");
        field.setAccessible(true);
        field.setInt(descriptor, number);
        return descriptor;
    }

    private void serve() throws IOException {
        for (ByteBuffer content = frames.read(); content != null; content = frames.read()) {
            int number = frames.number();
            if (frames.kind() == Frames.BATCH) {
                decide(number, content);
                continue;
            }
            try {
                frames.answer(Frames.DONE, number, frames.kind() == Frames.COMPILE ? compile(content) : load(content));
            } catch (Refusal refusal) {
                frames.answer(Frames.REFUSED, number, refusal.getMessage());
            } catch (Throwable failure) {
                frames.answer(Frames.REFUSED, number, describe(failure));
            }
        }
    }

    private static byte[] compile(ByteBuffer content) throws Refusal {
        String className = Frames.takeName(content);
        byte[] source = Frames.take(content, content.remaining());
        String text = new String(source, StandardCharsets.UTF_8);
        return Frames.packClasses(SourceCompiler.compile(className, text));
    }

    private byte[] load(ByteBuffer content) throws Throwable {
        String className = Frames.takeName(content);
        filter = new UploadedClasses(Frames.takeClasses(content)).newFilter(className);
        return new byte[0];
    }

    /** Call the filter with each message; all messages are read, even after a failure. */
    private void decide(int number, ByteBuffer content) throws IOException {
        int count = content.getInt();
        FilterContext context = new FilterContext();
        context.setConsumerGroup(
            new String(Frames.take(content, content.remaining()), StandardCharsets.UTF_8));
        byte[] bits = new byte[(count + 7) / 8];
        String failure = filter == null ? "no filter is loaded" : null;
        for (int index = 0; index < count; index++) {
            ByteBuffer message = frames.read();
            if (failure != null) {
                continue;
            }
            try {
                if (filter.match(MessageExt.read(message), context)) {
                    bits[index / 8] |= (byte) (1 << index % 8);
                }
            } catch (Throwable thrown) {
                failure = describe(thrown);
            }
        }
        if (failure == null) {
            frames.answer(Frames.BITS, number, bits);
        } else {
            frames.answer(Frames.FAILED, number, failure);
        }
    }

    /** The class and text of an exception, and the line of the source that threw it. */
    private static String describe(Throwable thrown) {
        String text;
        try {
            text = thrown.toString();
        } catch (Throwable another) { // toString was uploaded too
            return thrown.getClass().getName() + ", whose text throws " + another.getClass().getName();
        }
        for (StackTraceElement each : thrown.getStackTrace()) {
            if (UploadedClasses.NAME.equals(each.getClassLoaderName())) {
                return text + " (line " + each.getLineNumber() + ")";
            }
        }
        return text;
    }
}
