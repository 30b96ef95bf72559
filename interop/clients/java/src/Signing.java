import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.remoting.RPCHook;

/** The hook that signs requests with an account. */
final class Signing {
    private Signing() {
    }

    /** Of "NAME SECRET", by Apache's own class; null of null. */
    static RPCHook of(String account) {
        if (account == null) {
            return null;
        }
        String[] words = account.split(" ");
        return new AclClientRPCHook(new SessionCredentials(words[0], words[1]));
    }
}
