package trocket.junit;

import java.util.Optional;
import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.ExtensionContext.Namespace;
import org.junit.jupiter.api.extension.ExtensionContext.Store;
import org.junit.jupiter.api.extension.ParameterContext;
import org.junit.jupiter.api.extension.ParameterResolutionException;
import org.junit.jupiter.api.extension.ParameterResolver;
import org.junit.platform.commons.support.AnnotationSupport;

/** Starts, hands out and ends the brokers of {@link RocketMQ}. */
final class RocketMQExtension implements ParameterResolver, AfterEachCallback {
    private static final Namespace BROKERS = Namespace.create(RocketMQExtension.class);

    /** What JUnit closes when the class or the method has ended; newer ones ask for the second. */
    private record Held(Broker broker) implements Store.CloseableResource, AutoCloseable {
        @Override
        public void close() {
            broker.close();
        }
    }

    @Override
    public boolean supportsParameter(ParameterContext parameter, ExtensionContext context) {
        return parameter.getParameter().getType() == Broker.class;
    }

    @Override
    public Object resolveParameter(ParameterContext parameter, ExtensionContext context) {
        ExtensionContext home = homeOf(context);
        RocketMQ wanted = annotationOf(home).orElseThrow();
        boolean isPerMethod = wanted.per() == RocketMQ.Per.METHOD;
        if (isPerMethod && context.getTestMethod().isEmpty()) {
            throw new ParameterResolutionException("with @RocketMQ(per = METHOD) there is a broker "
                + "only while a test runs: take it as a parameter of @BeforeEach or of the test");
        }
        Store store = (isPerMethod ? context : home).getStore(BROKERS);
        return store.getOrComputeIfAbsent(home.getUniqueId(),
            key -> new Held(Broker.start(wanted.config())), Held.class).broker();
    }

    @Override
    public void afterEach(ExtensionContext context) {
        Held held = context.getStore(BROKERS).get(homeOf(context).getUniqueId(), Held.class);
        if (held == null) {
            return;
        }
        String log = held.broker().log();
        if (context.getExecutionException().isPresent() && !log.isEmpty()) {
            System.err.println(context.getDisplayName() + " failed; trocket's log:\n" + log);
        }
        held.broker().mend();
    }

    /** The context of the class with the annotation: this test's, or one around it. */
    private static ExtensionContext homeOf(ExtensionContext context) {
        ExtensionContext each = context;
        while (each.getTestMethod().isPresent() || annotationOf(each).isEmpty()) {
            each = each.getParent().orElseThrow();
        }
        return each;
    }

    private static Optional<RocketMQ> annotationOf(ExtensionContext context) {
        return AnnotationSupport.findAnnotation(context.getTestClass(), RocketMQ.class);
    }
}
