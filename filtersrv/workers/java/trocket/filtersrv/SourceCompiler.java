package trocket.filtersrv;

import java.io.ByteArrayOutputStream;
import java.io.OutputStream;
import java.io.StringWriter;
import java.net.URI;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import javax.tools.Diagnostic;
import javax.tools.DiagnosticCollector;
import javax.tools.FileObject;
import javax.tools.ForwardingJavaFileManager;
import javax.tools.JavaCompiler;
import javax.tools.JavaFileManager;
import javax.tools.JavaFileObject;
import javax.tools.SimpleJavaFileObject;
import javax.tools.ToolProvider;

/** Compiles in memory: the process can write no file. */
final class SourceCompiler {
    private SourceCompiler() {
    }

    /** The classes that a source defines, by name. */
    static Map<String, byte[]> compile(String className, String source) throws Refusal {
        JavaCompiler compiler = ToolProvider.getSystemJavaCompiler();
        DiagnosticCollector<JavaFileObject> diagnostics = new DiagnosticCollector<>();
        Classes classes = new Classes(compiler.getStandardFileManager(diagnostics, Locale.ROOT, null));
        // Nothing but the source itself is read or run: no processors, no sources beside it.
        List<String> options = Arrays.asList(
            "-proc:none", "-implicit:none", "-nowarn", "-g:source,lines",
            "-classpath", System.getProperty("java.class.path"), "-sourcepath", "");
        StringWriter said = new StringWriter();
        boolean done = compiler.getTask(
            said, classes, diagnostics, options, null, Arrays.asList(new Source(className, source))).call();
        if (!done) {
            String errors = describe(diagnostics);
            // If the compiler itself failed, its output has the reason.
            throw new Refusal(errors.isEmpty() ? said.toString().trim() : errors);
        }
        Map<String, byte[]> compiled = classes.compiled();
        if (!compiled.containsKey(className)) {
            throw new Refusal("the source does not define " + className + ", but " + compiled.keySet());
        }
        return compiled;
    }

    private static String describe(DiagnosticCollector<JavaFileObject> diagnostics) {
        StringBuilder text = new StringBuilder();
        for (Diagnostic<? extends JavaFileObject> each : diagnostics.getDiagnostics()) {
            if (each.getKind() == Diagnostic.Kind.ERROR) {
                text.append(text.length() == 0 ? "" : "\n");
                text.append("line ").append(each.getLineNumber()).append(": ");
                text.append(each.getMessage(Locale.ROOT));
            }
        }
        return text.toString();
    }

    private static final class Source extends SimpleJavaFileObject {
        private final String text;

        Source(String className, String text) {
            super(URI.create("upload:///" + className.replace('.', '/') + ".java"), Kind.SOURCE);
            this.text = text;
        }

        @Override
        public CharSequence getCharContent(boolean ignoreEncodingErrors) {
            return text;
        }
    }

    private static final class Compiled extends SimpleJavaFileObject {
        final ByteArrayOutputStream bytes = new ByteArrayOutputStream();

        Compiled(String name) {
            super(URI.create("upload:///" + name.replace('.', '/') + ".class"), Kind.CLASS);
        }

        @Override
        public OutputStream openOutputStream() {
            return bytes;
        }
    }

    private static final class Classes extends ForwardingJavaFileManager<JavaFileManager> {
        private final Map<String, Compiled> files = new LinkedHashMap<>();

        Classes(JavaFileManager standard) {
            super(standard);
        }

        @Override
        public JavaFileObject getJavaFileForOutput(
                Location location, String className, JavaFileObject.Kind kind, FileObject sibling) {
            return files.computeIfAbsent(className, Compiled::new);
        }

        Map<String, byte[]> compiled() {
            Map<String, byte[]> compiled = new LinkedHashMap<>();
            files.forEach((name, file) -> compiled.put(name, file.bytes.toByteArray()));
            return compiled;
        }
    }
}
