package trocket.junit;

import java.lang.annotation.Documented;
import java.lang.annotation.ElementType;
import java.lang.annotation.Inherited;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;
import org.junit.jupiter.api.extension.ExtendWith;

/**
 * Gives the tests of a class a RocketMQ broker whose time they command.
 *
 * <p>Methods of the class, and its constructor, take it as a parameter of type {@link Broker}. It
 * starts when it is first asked for, on free ports and in memory, and ends with its class or
 * method, or with the JVM. Faults and the disk are as at the start after each test; topics,
 * messages and the time stay as they are for the next test of the same broker.
 */
@Documented
@ExtendWith(RocketMQExtension.class)
@Inherited
@Retention(RetentionPolicy.RUNTIME)
@Target(ElementType.TYPE)
public @interface RocketMQ {
    /** The tests that share a broker. */
    enum Per {
        /** All tests of the class and of its {@code @Nested} classes: one start, about a second. */
        CLASS,
        /** Each test has a broker for itself, in its {@code @BeforeEach}, too. */
        METHOD
    }

    /** The tests that share a broker. */
    Per per() default Per.CLASS;

    /** Lines of a broker.conf, such as {@code "enablePropertyFilter=true"}. */
    String[] config() default {};
}
