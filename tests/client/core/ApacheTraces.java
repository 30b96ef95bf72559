import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.AccessChannel;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.trace.TraceBean;
import org.apache.rocketmq.client.trace.TraceContext;
import org.apache.rocketmq.client.trace.TraceDataEncoder;
import org.apache.rocketmq.client.trace.TraceType;
import org.apache.rocketmq.common.message.MessageType;

/**
 * Has Apache RocketMQ's own classes encode trace records, and writes what they made as JSON, in hex:
 * apache_traces_5.5.0.json and apache_traces_4.9.7.json.
 *
 * <p>With the jars of one version of rocketmq-client in $LIB: javac -cp "$LIB/*" -d $OUT ApacheTraces.java; java -cp
 * "$OUT:$LIB/*" ApacheTraces apache_traces_5.5.0.json
 */
public class ApacheTraces {
    static TraceContext context(TraceType type) {
        TraceBean bean = new TraceBean();
        bean.setTopic("Orders");
        bean.setMsgId("7F0000010A3C18B4AAC21B7D5C5D0001");
        bean.setTags("tag-ü");
        bean.setKeys("key-1 key-2");
        bean.setStoreHost("127.0.0.1:10911");
        bean.setClientHost("127.0.0.1@4711");
        bean.setBodyLength(1234);
        bean.setMsgType(MessageType.Normal_Msg);
        bean.setOffsetMsgId("7F00000100002A9F00000000000001F4");
        bean.setRetryTimes(3);
        bean.setTransactionId("7F0000010A3C18B4AAC21B7D5C5D0001");
        bean.setTransactionState(LocalTransactionState.COMMIT_MESSAGE);
        bean.setFromTransactionCheck(true);
        TraceContext context = new TraceContext();
        context.setTraceType(type);
        context.setTimeStamp(1700000000123L);
        context.setRegionId("DefaultRegion");
        context.setGroupName("group");
        context.setRequestId("7F0000010A3C18B4AAC21B7D5C5D0002");
        context.setCostTime(42);
        context.setSuccess(true);
        context.setContextCode(0);
        context.setAccessChannel(AccessChannel.LOCAL);
        List<TraceBean> beans = new ArrayList<>();
        beans.add(bean);
        context.setTraceBeans(beans);
        return context;
    }

    static String hex(TraceContext context) {
        StringBuilder text = new StringBuilder();
        String data = TraceDataEncoder.encoderFromContextBean(context).getTransData();
        for (byte each : data.getBytes(StandardCharsets.UTF_8)) {
            text.append(String.format("%02x", each));
        }
        return text.toString();
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, String> made = new TreeMap<>();
        made.put("pub", hex(context(TraceType.Pub)));
        TraceContext bare = context(TraceType.Pub);
        bare.getTraceBeans().get(0).setTags(null);
        bare.getTraceBeans().get(0).setKeys(null);
        bare.getTraceBeans().get(0).setMsgType(MessageType.Delay_Msg);
        bare.setSuccess(false);
        made.put("pub_bare", hex(bare));
        made.put("sub_before", hex(context(TraceType.SubBefore)));
        TraceContext noKeys = context(TraceType.SubBefore);
        noKeys.getTraceBeans().get(0).setKeys(null);
        made.put("sub_before_bare", hex(noKeys));
        made.put("sub_after", hex(context(TraceType.SubAfter)));
        TraceContext cloud = context(TraceType.SubAfter);
        cloud.setAccessChannel(AccessChannel.CLOUD);
        cloud.setContextCode(4);
        cloud.setSuccess(false);
        made.put("sub_after_cloud", hex(cloud));
        made.put("end_transaction", hex(context(TraceType.EndTransaction)));
        TraceContext unknown = context(TraceType.EndTransaction);
        unknown.getTraceBeans().get(0).setTransactionState(LocalTransactionState.UNKNOW);
        unknown.getTraceBeans().get(0).setFromTransactionCheck(false);
        made.put("end_transaction_unknown", hex(unknown));
        for (TraceType type : TraceType.values()) {
            if (type.name().equals("Recall")) {
                made.put("recall", hex(context(type)));
            }
        }
        StringBuilder json = new StringBuilder("{");
        for (Map.Entry<String, String> each : made.entrySet()) {
            json.append(json.length() > 1 ? ",\n" : "\n");
            json.append('"').append(each.getKey()).append("\": \"").append(each.getValue()).append('"');
        }
        Files.write(Paths.get(arguments[0]), json.append("\n}\n").toString().getBytes(StandardCharsets.UTF_8));
    }
}
