package trocket.filtersrv;

import java.util.Map;
import org.apache.rocketmq.common.filter.MessageFilter;

/** Loads the classes of one filter. The sandbox of the process restricts them, not this class. */
final class UploadedClasses extends ClassLoader {
    static final String NAME = "upload";

    private final Map<String, byte[]> classes;

    UploadedClasses(Map<String, byte[]> classes) {
        super(NAME, UploadedClasses.class.getClassLoader());
        this.classes = classes;
    }

    @Override
    protected Class<?> findClass(String name) throws ClassNotFoundException {
        byte[] compiled = classes.get(name);
        if (compiled == null) {
            throw new ClassNotFoundException(name);
        }
        return defineClass(name, compiled, 0, compiled.length);
    }

    /** A new object of the filter. */
    MessageFilter newFilter(String className) throws Throwable {
        Class<?> filter = Class.forName(className, true, this);
        if (!MessageFilter.class.isAssignableFrom(filter)) {
            throw new Refusal(className + " does not implement " + MessageFilter.class.getName());
        }
        try {
            return (MessageFilter) filter.getConstructor().newInstance();
        } catch (NoSuchMethodException | IllegalAccessException | InstantiationException failure) {
            throw new Refusal(className + " is not public, or has no public constructor without arguments");
        } catch (java.lang.reflect.InvocationTargetException failure) {
            throw failure.getCause();
        }
    }
}
