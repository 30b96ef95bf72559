import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.util.Base64;
import java.util.TreeMap;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;
import org.apache.rocketmq.remoting.CommandCustomHeader;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** The hook that signs requests with an account: 4.2.0 has hooks, but none that signs. */
final class Signing implements RPCHook {
    private final String name;
    private final String secret;

    private Signing(String name, String secret) {
        this.name = name;
        this.secret = secret;
    }

    /** Of "NAME SECRET"; null of null. */
    static RPCHook of(String account) {
        if (account == null) {
            return null;
        }
        String[] words = account.split(" ");
        return new Signing(words[0], words[1]);
    }

    @Override
    public void doBeforeRequest(String address, RemotingCommand request) {
        addHeader(request);
        request.addExtField("AccessKey", name);
        TreeMap<String, String> fields = new TreeMap<>(request.getExtFields());
        fields.remove("Signature");
        try {
            Mac mac = Mac.getInstance("HmacSHA1");
            mac.init(new SecretKeySpec(secret.getBytes(StandardCharsets.UTF_8), "HmacSHA1"));
            for (String value : fields.values()) {
                if (value != null) {
                    mac.update(value.getBytes(StandardCharsets.UTF_8));
                }
            }
            if (request.getBody() != null) {
                mac.update(request.getBody());
            }
            request.addExtField("Signature", Base64.getEncoder().encodeToString(mac.doFinal()));
        } catch (GeneralSecurityException e) {
            throw new IllegalStateException(e);
        }
    }

    /**
     * Add the fields of the header. The client's own makeCustomHeaderToNet may leave some out where
     * several threads call it: it shares the Field objects, and closes their access again.
     */
    private static void addHeader(RemotingCommand request) {
        CommandCustomHeader header = request.readCustomHeader();
        if (header == null) {
            return;
        }
        try {
            for (Field field : header.getClass().getDeclaredFields()) {
                field.setAccessible(true);
                Object value = field.get(header);
                if (value != null && !Modifier.isStatic(field.getModifiers())) {
                    request.addExtField(field.getName(), value.toString());
                }
            }
        } catch (IllegalAccessException e) {
            throw new IllegalStateException(e);
        }
    }

    @Override
    public void doAfterResponse(String address, RemotingCommand request, RemotingCommand answer) {
    }
}
