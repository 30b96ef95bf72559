// Apache RocketMQ's own classes behind lines of JSON: the other side of tests that compare.
//
// One source for 4.9.7 and 5.5.0. Reads one object a line from standard input, each with "op" and
// what that needs, and answers each with one line: {"id":..,"ok":..} or {"id":..,"error":"Class: text"}.
// Bytes are hex. Everything that is no ASCII is escaped, so that no text is changed on its way.
// Ends when its input does.
import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import com.alibaba.fastjson.parser.Feature;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.net.Inet4Address;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByConfig;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.TopicFilterType;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageClientIDSetter;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageId;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.util.BloomFilter;
import org.apache.rocketmq.filter.util.BloomFilterData;
import org.apache.rocketmq.remoting.protocol.LanguageCode;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.SerializeType;

public class Oracle {
    public static void main(String[] arguments) throws IOException {
        PrintStream answers =
            new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.US_ASCII);
        // What 4.9.7 logs goes to standard output.
        System.setOut(System.err);
        System.setProperty("rocketmq.client.logUseSlf4j", "true");
        BufferedReader questions =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = questions.readLine()) != null; ) {
            answers.println(answered(line));
        }
        Runtime.getRuntime().halt(0);
    }

    static String answered(String line) {
        Map<String, Object> answer = new LinkedHashMap<>();
        try {
            JSONObject question = JSON.parseObject(line, Feature.OrderedField);
            answer.put("id", question.get("id"));
            answer.put("ok", ask(question));
        } catch (Throwable thrown) {
            Throwable cause =
                thrown instanceof InvocationTargetException ? thrown.getCause() : thrown;
            answer.put("error", cause.getClass().getSimpleName() + ": " + cause.getMessage());
        }
        return ascii(JSON.toJSONString(
            answer,
            SerializerFeature.WriteMapNullValue,
            SerializerFeature.DisableCircularReferenceDetect));
    }

    static Object ask(JSONObject question) throws Exception {
        switch (question.getString("op")) {
            case "version":
                return Class.forName("org.apache.rocketmq.common.MQVersion")
                    .getField("CURRENT_VERSION").get(null);
            case "frame_encode":
                return hex(bytes(frameOf(question).encode()));
            case "frame_decode":
                return frameDecoded(unhex(question.getString("hex")));
            case "record_encode":
                return hex(MessageDecoder.encode(recordOf(question), false));
            case "records_decode":
                return recordsDecoded(unhex(question.getString("hex")));
            case "batch_encode":
                return hex(MessageDecoder.encodeMessages(messagesOf(question)));
            case "batch_decode":
                return batchDecoded(unhex(question.getString("hex")));
            case "properties_to_string":
                return MessageDecoder.messageProperties2String(texts(question.get("properties")));
            case "string_to_properties":
                return MessageDecoder.string2messageProperties(question.getString("text"));
            case "sql":
                return sql(question.getString("expr"), texts(question.get("props")));
            case "sql_broker":
                return sqlBroker(question.getString("expr"), texts(question.get("props")));
            case "bloom":
                return bloom(question);
            case "hash_code":
                return question.getString("text").hashCode();
            case "tags_code":
                return tagsCode(question.getString("text"));
            case "crc32":
                return UtilAll.crc32(unhex(question.getString("hex")));
            case "offset_id_encode":
                return offsetId(question);
            case "offset_id_decode":
                return offsetIdDecoded(question.getString("text"));
            case "unique_id_encode":
                return MessageClientIDSetter.createUniqID();
            case "unique_id_decode":
                return uniqueIdDecoded(question.getString("text"));
            case "allocate":
                return allocated(question);
            case "sign":
                return signed(question);
            case "order_table":
                return OrderTable.run(question);
            default:
                throw new IllegalArgumentException("no operation " + question.getString("op"));
        }
    }

    // ---- frames ------------------------------------------------------------------------------

    static RemotingCommand frameOf(JSONObject question) {
        RemotingCommand command =
            RemotingCommand.createRequestCommand(question.getIntValue("code"), null);
        command.setFlag(question.getIntValue("flag"));
        command.setOpaque(question.getIntValue("opaque"));
        command.setVersion(question.getIntValue("version"));
        command.setLanguage(LanguageCode.valueOf(question.getString("language")));
        command.setRemark(question.getString("remark"));
        command.setSerializeTypeCurrentRPC(SerializeType.valueOf(question.getString("serialize")));
        if (question.get("ext") != null) {
            command.setExtFields(texts(question.get("ext")));
        }
        command.setBody(unhex(question.getString("body")));
        return command;
    }

    static Object frameDecoded(byte[] frame) throws Exception {
        // Without the length word, which Netty's decoder takes off.
        RemotingCommand command =
            RemotingCommand.decode(ByteBuffer.wrap(frame, 4, frame.length - 4).slice());
        Map<String, Object> found = new LinkedHashMap<>();
        found.put("code", command.getCode());
        found.put("flag", command.getFlag());
        found.put("opaque", command.getOpaque());
        found.put("version", command.getVersion());
        found.put("language", String.valueOf(command.getLanguage()));
        found.put("remark", command.getRemark());
        found.put("serialize", command.getSerializeTypeCurrentRPC().name());
        found.put("ext", command.getExtFields());
        found.put("body", hex(command.getBody()));
        return found;
    }

    static Object signed(JSONObject question) {
        SessionCredentials credentials = new SessionCredentials();
        credentials.setAccessKey(question.getString("access_key"));
        credentials.setSecretKey(question.getString("secret_key"));
        credentials.setSecurityToken(question.getString("security_token"));
        RemotingCommand command = RemotingCommand.createRequestCommand(10, null);
        command.setExtFields(texts(question.get("ext")));
        command.setBody(unhex(question.getString("body")));
        new AclClientRPCHook(credentials).doBeforeRequest("127.0.0.1:10911", command);
        return command.getExtFields();
    }

    // ---- records, batches, properties --------------------------------------------------------

    static InetSocketAddress host(JSONObject question, String which) throws IOException {
        InetAddress address = InetAddress.getByName(question.getString(which + "_ip"));
        return new InetSocketAddress(address, question.getIntValue(which + "_port"));
    }

    static MessageExt recordOf(JSONObject question) throws IOException {
        MessageExt message = new MessageExt();
        message.setTopic(question.getString("topic"));
        message.setQueueId(question.getIntValue("queue_id"));
        message.setFlag(question.getIntValue("flag"));
        message.setQueueOffset(question.getLongValue("queue_offset"));
        message.setCommitLogOffset(question.getLongValue("physical_offset"));
        message.setSysFlag(question.getIntValue("sys_flag"));
        message.setBornTimestamp(question.getLongValue("born_timestamp"));
        message.setBornHost(host(question, "born"));
        message.setStoreTimestamp(question.getLongValue("store_timestamp"));
        message.setStoreHost(host(question, "store"));
        message.setReconsumeTimes(question.getIntValue("reconsume_times"));
        message.setPreparedTransactionOffset(question.getLongValue("prepared_offset"));
        message.setBody(unhex(question.getString("body")));
        message.setBodyCRC(UtilAll.crc32(message.getBody()));
        MessageAccessor.setProperties(message, texts(question.get("properties")));
        return message;
    }

    static Object recordsDecoded(byte[] records) {
        List<Object> found = new ArrayList<>();
        for (MessageExt message : MessageDecoder.decodes(ByteBuffer.wrap(records))) {
            Map<String, Object> one = new LinkedHashMap<>();
            one.put("topic", message.getTopic());
            one.put("queue_id", message.getQueueId());
            one.put("flag", message.getFlag());
            one.put("queue_offset", message.getQueueOffset());
            one.put("physical_offset", message.getCommitLogOffset());
            one.put("sys_flag", message.getSysFlag());
            one.put("born_timestamp", message.getBornTimestamp());
            one.put("born_ip", ip(message.getBornHost()));
            one.put("born_port", port(message.getBornHost()));
            one.put("store_timestamp", message.getStoreTimestamp());
            one.put("store_ip", ip(message.getStoreHost()));
            one.put("store_port", port(message.getStoreHost()));
            one.put("reconsume_times", message.getReconsumeTimes());
            one.put("prepared_offset", message.getPreparedTransactionOffset());
            one.put("body", hex(message.getBody()));
            one.put("body_crc", message.getBodyCRC());
            one.put("size", message.getStoreSize());
            one.put("properties", message.getProperties());
            one.put("message_id", message.getMsgId());
            found.add(one);
        }
        return found;
    }

    static String ip(Object address) {
        return ((InetSocketAddress) address).getAddress().getHostAddress();
    }

    static int port(Object address) {
        return ((InetSocketAddress) address).getPort();
    }

    static List<Message> messagesOf(JSONObject question) {
        List<Message> messages = new ArrayList<>();
        for (Object each : question.getJSONArray("messages")) {
            JSONObject one = (JSONObject) each;
            Message message = new Message("T", unhex(one.getString("body")));
            message.setFlag(one.getIntValue("flag"));
            MessageAccessor.setProperties(message, texts(one.get("properties")));
            messages.add(message);
        }
        return messages;
    }

    static Object batchDecoded(byte[] batch) throws Exception {
        List<Object> found = new ArrayList<>();
        for (Message message : MessageDecoder.decodeMessages(ByteBuffer.wrap(batch))) {
            Map<String, Object> one = new LinkedHashMap<>();
            one.put("flag", message.getFlag());
            one.put("body", hex(message.getBody()));
            one.put("properties", message.getProperties());
            found.add(one);
        }
        return found;
    }

    // ---- filters -----------------------------------------------------------------------------

    /** "true", "false", "null", or what went wrong; properties are as a client would give them. */
    static String sql(String text, Map<String, String> properties) {
        Expression expression;
        try {
            expression = FilterFactory.INSTANCE.get("SQL92").compile(text);
        } catch (Throwable thrown) {
            return "compile-error: " + thrown.getClass().getSimpleName();
        }
        EvaluationContext context = new EvaluationContext() {
            @Override
            public Object get(String name) {
                return properties.get(name);
            }

            @Override
            public Map<String, Object> keyValues() {
                return new HashMap<>(properties);
            }
        };
        try {
            return String.valueOf(expression.evaluate(context));
        } catch (Throwable thrown) {
            return "eval-error: " + thrown.getClass().getSimpleName();
        }
    }

    /** Whether the broker would give out a message: only when the result is true. */
    static boolean sqlBroker(String text, Map<String, String> properties) throws Exception {
        Expression expression = FilterFactory.INSTANCE.get("SQL92").compile(text);
        EvaluationContext context = (EvaluationContext) Class
            .forName("org.apache.rocketmq.broker.filter.MessageEvaluationContext")
            .getConstructor(Map.class).newInstance(properties);
        try {
            return Boolean.TRUE.equals(expression.evaluate(context));
        } catch (Throwable thrown) {
            return false;
        }
    }

    static Object tagsCode(String tags) throws Exception {
        Class<?> inner;
        try {
            inner = Class.forName("org.apache.rocketmq.common.message.MessageExtBrokerInner");
        } catch (ClassNotFoundException absent) {
            inner = Class.forName("org.apache.rocketmq.store.MessageExtBrokerInner");
        }
        return inner.getMethod("tagsString2tagsCode", TopicFilterType.class, String.class)
            .invoke(null, null, tags);
    }

    static Object bloom(JSONObject question) {
        BloomFilter filter =
            BloomFilter.createByFn(question.getIntValue("error_rate"), question.getIntValue("count"));
        BloomFilterData data = filter.generate(question.getString("text"));
        Map<String, Object> found = new LinkedHashMap<>();
        found.put("positions", data.getBitPos());
        found.put("bit_count", data.getBitNum());
        found.put("k", filter.getK());
        found.put("m", filter.getM());
        return found;
    }

    // ---- ids ---------------------------------------------------------------------------------

    static String offsetId(JSONObject question) throws IOException {
        InetAddress address = InetAddress.getByName(question.getString("ip"));
        int ipSize = address instanceof Inet4Address ? 4 : 16;
        ByteBuffer store = ByteBuffer.allocate(ipSize + 4);
        store.put(address.getAddress()).putInt(question.getIntValue("port")).flip();
        ByteBuffer scratch = ByteBuffer.allocate(ipSize + 12);
        return MessageDecoder.createMessageId(scratch, store, question.getLongValue("offset"));
    }

    static Object offsetIdDecoded(String text) throws Exception {
        MessageId id = MessageDecoder.decodeMessageId(text);
        return Arrays.asList(ip(id.getAddress()), port(id.getAddress()), id.getOffset());
    }

    static Object uniqueIdDecoded(String text) {
        Map<String, Object> found = new LinkedHashMap<>();
        found.put("ip", MessageClientIDSetter.getIPStrFromID(text));
        found.put("pid", MessageClientIDSetter.getPidFromID(text));
        found.put("time", MessageClientIDSetter.getNearlyTimeFromID(text).getTime());
        return found;
    }

    // ---- queues ------------------------------------------------------------------------------

    static Object allocated(JSONObject question) {
        AllocateMessageQueueStrategy strategy = strategy(question.getString("strategy"), question);
        List<String> clients = question.getJSONArray("client_ids").toJavaList(String.class);
        List<Object> found = new ArrayList<>();
        for (MessageQueue queue : strategy.allocate(
            question.getString("group"),
            question.getString("client_id"),
            queues(question.getJSONArray("queues")),
            clients)) {
            found.add(Arrays.asList(queue.getTopic(), queue.getBrokerName(), queue.getQueueId()));
        }
        return found;
    }

    static List<MessageQueue> queues(JSONArray all) {
        List<MessageQueue> found = new ArrayList<>();
        for (Object each : all) {
            JSONArray one = (JSONArray) each;
            found.add(new MessageQueue(one.getString(0), one.getString(1), one.getIntValue(2)));
        }
        return found;
    }

    static AllocateMessageQueueStrategy strategy(String name, JSONObject question) {
        switch (name) {
            case "AVG":
                return new AllocateMessageQueueAveragely();
            case "AVG_BY_CIRCLE":
                return new AllocateMessageQueueAveragelyByCircle();
            case "CONSISTENT_HASH":
                return new AllocateMessageQueueConsistentHash(question.getIntValue("nodes"));
            case "CONFIG":
                AllocateMessageQueueByConfig config = new AllocateMessageQueueByConfig();
                config.setMessageQueueList(queues(question.getJSONArray("configured")));
                return config;
            case "MACHINE_ROOM":
                AllocateMessageQueueByMachineRoom rooms = new AllocateMessageQueueByMachineRoom();
                rooms.setConsumeridcs(
                    new HashSet<>(question.getJSONArray("rooms").toJavaList(String.class)));
                return rooms;
            case "MACHINE_ROOM_NEARBY":
                return nearby(question);
            default:
                throw new IllegalArgumentException("no strategy " + name);
        }
    }

    /** The room of a broker or a client is what stands before the first "@" in its name. */
    static AllocateMessageQueueStrategy nearby(JSONObject question) {
        AllocateMessageQueueStrategy inner = strategy(question.getString("inner"), question);
        return new AllocateMachineRoomNearby(
            inner,
            new AllocateMachineRoomNearby.MachineRoomResolver() {
                @Override
                public String brokerDeployIn(MessageQueue queue) {
                    return queue.getBrokerName().split("@", 2)[0];
                }

                @Override
                public String consumerDeployIn(String clientId) {
                    return clientId.split("@", 2)[0];
                }
            });
    }

    // ---- texts and bytes ---------------------------------------------------------------------

    /** An object's members, all texts, in their order. */
    static LinkedHashMap<String, String> texts(Object object) {
        LinkedHashMap<String, String> found = new LinkedHashMap<>();
        if (object != null) {
            for (Map.Entry<String, Object> each : ((JSONObject) object).entrySet()) {
                found.put(each.getKey(), (String) each.getValue());
            }
        }
        return found;
    }

    static byte[] bytes(ByteBuffer buffer) {
        byte[] found = new byte[buffer.remaining()];
        buffer.duplicate().get(found);
        return found;
    }

    static String hex(byte[] bytes) {
        if (bytes == null) {
            return null;
        }
        StringBuilder text = new StringBuilder(2 * bytes.length);
        for (byte each : bytes) {
            text.append(Character.forDigit(each >> 4 & 15, 16)).append(Character.forDigit(each & 15, 16));
        }
        return text.toString();
    }

    static byte[] unhex(String text) {
        if (text == null) {
            return null;
        }
        byte[] found = new byte[text.length() / 2];
        for (int i = 0; i < found.length; i++) {
            found[i] = (byte) Integer.parseInt(text.substring(2 * i, 2 * i + 2), 16);
        }
        return found;
    }

    static String ascii(String text) {
        StringBuilder escaped = new StringBuilder(text.length());
        for (char each : text.toCharArray()) {
            if (each >= ' ' && each < 127) {
                escaped.append(each);
            } else {
                escaped.append(String.format("\\u%04x", (int) each));
            }
        }
        return escaped.toString();
    }
}
