import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONWriter;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.Validators;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.impl.consumer.ProcessQueue;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.client.latency.MQFaultStrategy;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.NamespaceUtil;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;
import org.apache.rocketmq.remoting.protocol.filter.FilterAPI;
import org.apache.rocketmq.remoting.protocol.heartbeat.SubscriptionData;
import org.apache.rocketmq.remoting.protocol.route.TopicRouteData;

/**
 * Asks Apache RocketMQ's own classes, and writes what they said as JSON: apache_tables.json.
 *
 * <p>With the jars of rocketmq-client 5.5.0 in $LIB: javac -cp "$LIB/*" -d $OUT ApacheTables.java; java -cp
 * "$OUT:$LIB/*" ApacheTables 5.5.0 apache_tables.json
 */
public class ApacheTables {
    static final Random RANDOM = new Random(20250501);

    static Map<String, Object> row(Object... pairs) {
        Map<String, Object> row = new LinkedHashMap<>();
        for (int i = 0; i < pairs.length; i += 2) {
            row.put((String) pairs[i], pairs[i + 1]);
        }
        return row;
    }

    static List<Object> queues(Iterable<MessageQueue> queues) {
        List<Object> result = new ArrayList<>();
        for (MessageQueue queue : queues) {
            result.add(Arrays.asList(queue.getTopic(), queue.getBrokerName(), queue.getQueueId()));
        }
        return result;
    }

    // --- allocation

    static final Map<String, AllocateMessageQueueStrategy> STRATEGIES = new LinkedHashMap<>();

    static {
        STRATEGIES.put("avg", new AllocateMessageQueueAveragely());
        STRATEGIES.put("circle", new AllocateMessageQueueAveragelyByCircle());
        STRATEGIES.put("hash", new AllocateMessageQueueConsistentHash());
        STRATEGIES.put("hash3", new AllocateMessageQueueConsistentHash(3));
        STRATEGIES.put("hash0", new AllocateMessageQueueConsistentHash(0));
        AllocateMessageQueueByMachineRoom byRoom = new AllocateMessageQueueByMachineRoom();
        byRoom.setConsumeridcs(new HashSet<>(Arrays.asList("room1", "room2")));
        STRATEGIES.put("room", byRoom);
        STRATEGIES.put("nearby", new AllocateMachineRoomNearby(new AllocateMessageQueueAveragely(),
            new AllocateMachineRoomNearby.MachineRoomResolver() {
                @Override
                public String brokerDeployIn(MessageQueue queue) {
                    return queue.getBrokerName().split("@")[0];
                }

                @Override
                public String consumerDeployIn(String clientId) {
                    return clientId.split("-")[0];
                }
            }));
    }

    static List<Object> allocations() {
        List<Object> rows = new ArrayList<>();
        String[] brokers = {"room1@a", "room1@b", "room2@a", "room3@a", "room4@b", "plain", "room1@", "room2@x@"};
        for (int number = 0; number < 48; number++) {
            String topic = number % 3 == 0 ? "T" : "%RETRY%group-" + number;
            List<MessageQueue> queues = new ArrayList<>();
            int size = number < 20 ? number + 1 : 1 + RANDOM.nextInt(24);
            for (int i = 0; i < size; i++) {
                queues.add(new MessageQueue(topic, brokers[number < 10 ? 0 : RANDOM.nextInt(brokers.length)], i));
            }
            Collections.sort(queues);
            List<String> clients = new ArrayList<>();
            int count = 1 + RANDOM.nextInt(number % 4 == 0 ? 3 : 9);
            for (int i = 0; i < count; i++) {
                clients.add("room" + (1 + RANDOM.nextInt(5)) + "-10.0.0." + RANDOM.nextInt(250) + "@" + i);
            }
            if (number % 7 == 6) {
                clients.add(clients.get(0));
            }
            Collections.sort(clients);
            Map<String, Object> results = new LinkedHashMap<>();
            for (Map.Entry<String, AllocateMessageQueueStrategy> each : STRATEGIES.entrySet()) {
                List<Object> shares = new ArrayList<>();
                for (String client : clients) {
                    List<Object> share = new ArrayList<>();
                    for (MessageQueue queue : each.getValue().allocate("group", client, queues, clients)) {
                        share.add(queues.indexOf(queue));
                    }
                    shares.add(share);
                }
                results.put(each.getKey(), shares);
            }
            rows.add(row("queues", queues(queues), "clients", clients, "shares", results));
        }
        return rows;
    }

    // --- namespaces, subscriptions, names

    static List<Object> namespaces() {
        List<Object> rows = new ArrayList<>();
        String[] resources = {"topic", "group", "ns%topic", "ns2%topic", "%RETRY%group", "%RETRY%ns%group",
            "%RETRY%ns2%group", "%DLQ%group", "%DLQ%ns%group", "TBW102", "RMQ_SYS_TRACE_TOPIC", "rmq_sys_x",
            "CID_RMQ_SYS_TRANS", "BenchmarkTest", "%topic", "a%b%c", "nstopic", "ns%", "%RETRY%", "CHECKPOINT_TOPIC",
            "SCHEDULE_TOPIC_XXXX", "%RETRY%CID_RMQ_SYS_x", "TBW1022", "rmq_sys_a%b", "CID_RMQ_SYS_a%b"};
        for (String resource : resources) {
            Map<String, Object> wrapped = new LinkedHashMap<>();
            Map<String, Object> without = new LinkedHashMap<>();
            Map<String, Object> retry = new LinkedHashMap<>();
            for (String namespace : new String[] {"", "ns", "ns2"}) {
                wrapped.put(namespace, NamespaceUtil.wrapNamespace(namespace, resource));
                without.put(namespace, NamespaceUtil.withoutNamespace(resource, namespace));
                retry.put(namespace, NamespaceUtil.wrapNamespaceAndRetry(namespace, resource));
            }
            rows.add(row("resource", resource, "wrapped", wrapped, "without", without, "retry", retry,
                "bare", NamespaceUtil.withoutNamespace(resource),
                "namespace", NamespaceUtil.getNamespaceFromResource(resource)));
        }
        return rows;
    }

    static List<Object> subscriptions() {
        List<Object> rows = new ArrayList<>();
        String[][] expressions = {{"TAG", "*"}, {"TAG", ""}, {"TAG", "A"}, {"TAG", "TagA || TagB"}, {"TAG", "A||B||A"},
            {"TAG", " A\t||\u00a0B "}, {"TAG", "||A"}, {"TAG", "A||"}, {"TAG", "A|B"}, {"TAG", "A || *"}, {"TAG", " * "},
            {"TAG", "AaAa||BBBB||AaBB"}, {"TAG", "\u6807\u7b7e||\ud83d\ude00"}, {"TAG", "A|||B"}, {"TAG", " !A! "}, {"TAG", "||"},
            {"SQL92", "a > 1"}, {"SQL92", "*"}, {"SQL92", ""}};
        for (String[] each : expressions) {
            Object result;
            try {
                SubscriptionData data = FilterAPI.build("T", each[1], each[0]);
                result = row("subString", data.getSubString(), "expressionType", data.getExpressionType(),
                    "tagsSet", new TreeSet<>(data.getTagsSet()), "codeSet", new TreeSet<>(data.getCodeSet()));
            } catch (Exception error) {
                result = null;
            }
            rows.add(row("type", each[0], "expression", each[1], "data", result));
        }
        return rows;
    }

    static List<Object> names() {
        List<Object> rows = new ArrayList<>();
        for (String name : new String[] {"topic", "a", "%RETRY%g", "a|b", "a-b_c", "9", "", " ", "a b", "a.b", "a/b",
            "t\u00f6pic", "a\n", "a@b", "a#b", "\uff11", "\u00b2"}) {
            rows.add(row("name", name, "topic", passes(() -> Validators.checkTopic(name)),
                "group", passes(() -> Validators.checkGroup(name))));
        }
        for (String name : new String[] {"topic", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC",
            "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT",
            "TBW102", "RMQ_SYS_TRACE_TOPIC", "BenchmarkTest", "rmq_sys_x", "CHECKPOINT_TOPIC"}) {
            rows.add(row("name", name, "send", passes(() -> Validators.isNotAllowedSendTopic(name)),
                "user", passes(() -> Validators.isSystemTopic(name))));
        }
        return rows;
    }

    interface Check {
        void run() throws MQClientException;
    }

    static boolean passes(Check check) {
        try {
            check.run();
            return true;
        } catch (MQClientException error) {
            return false;
        }
    }

    // --- signatures, client ids, latencies

    static List<Object> signatures() {
        List<Object> rows = new ArrayList<>();
        String[][] fields = {{}, {"topic", "T"}, {"b", "T", "a", "G", "i", "k\u0001v\u0002", "Z", "z", "_q", "1"},
            {"n", "\u00fc\u6807\ud83d\ude00", "e", ""}};
        for (String[] each : fields) {
            for (String token : new String[] {null, "token"}) {
                for (String body : new String[] {null, "body \u00e9"}) {
                    RemotingCommand request = RemotingCommand.createRequestCommand(310, null);
                    Map<String, String> ext = new LinkedHashMap<>();
                    for (int i = 0; i < each.length; i += 2) {
                        ext.put(each[i], each[i + 1]);
                    }
                    request.setExtFields(new HashMap<>(ext));
                    if (body != null) {
                        request.setBody(body.getBytes(StandardCharsets.UTF_8));
                    }
                    SessionCredentials credentials = token == null ? new SessionCredentials("AK", "s\u00e9cret")
                        : new SessionCredentials("AK", "s\u00e9cret", token);
                    new AclClientRPCHook(credentials).doBeforeRequest("", request);
                    rows.add(row("ext", ext, "token", token, "body", body == null ? "" : body,
                        "signed", new TreeMap<>(request.getExtFields())));
                }
            }
        }
        return rows;
    }

    static List<Object> clientIds() {
        List<Object> rows = new ArrayList<>();
        for (String unit : new String[] {null, "", "u1"}) {
            for (boolean stream : new boolean[] {false, true}) {
                ClientConfig config = new ClientConfig();
                config.setClientIP("10.0.0.1");
                config.setInstanceName("name");
                config.setUnitName(unit);
                config.setEnableStreamRequestType(stream);
                rows.add(row("unit", unit, "stream", stream, "id", config.buildMQClientId()));
            }
        }
        return rows;
    }

    static List<Object> latencies() throws Exception {
        MQFaultStrategy strategy = new MQFaultStrategy(new ClientConfig(), name -> null, null);
        Method compute = MQFaultStrategy.class.getDeclaredMethod("computeNotAvailableDuration", long.class);
        compute.setAccessible(true);
        List<Object> rows = new ArrayList<>();
        for (long latency : new long[] {0, 49, 50, 99, 100, 549, 550, 1799, 1800, 2999, 3000, 4999, 5000, 10000, 14999,
            15000, 99999}) {
            rows.add(Arrays.asList(latency, compute.invoke(strategy, latency)));
        }
        return rows;
    }

    // --- routes

    static List<Object> routes() {
        String a = "{\"brokerName\":\"a\",\"cluster\":\"c\",\"brokerAddrs\":{\"0\":\"h:1\",\"1\":\"h:2\"}}";
        String b = "{\"brokerName\":\"b\",\"cluster\":\"c\",\"brokerAddrs\":{\"1\":\"h:3\"}}";
        String c = "{\"brokerName\":\"c\",\"cluster\":\"c\",\"brokerAddrs\":{\"0\":\"h:4\"}}";
        String brokers = "\"brokerDatas\":[" + c + "," + a + "," + b + "]";
        String[] routes = {
            "{" + brokers + ",\"queueDatas\":[" + queue("c", 2, 3, 6) + "," + queue("a", 3, 1, 6) + "," + queue("b", 1, 1, 6) + "]}",
            "{" + brokers + ",\"queueDatas\":[" + queue("a", 2, 2, 4) + "," + queue("c", 2, 2, 2) + "," + queue("x", 2, 2, 6) + "]}",
            "{" + brokers + ",\"queueDatas\":[" + queue("a", 2, 2, 0) + "," + queue("c", 0, 0, 7) + "]}",
            "{" + brokers + ",\"queueDatas\":[]}",
            "{" + brokers + ",\"orderTopicConf\":\"a:2;b:3\",\"queueDatas\":[" + queue("a", 4, 4, 6) + "]}",
            "{" + brokers + ",\"orderTopicConf\":\"b:1;\",\"queueDatas\":[" + queue("a", 4, 4, 6) + "]}",
            "{" + brokers + ",\"orderTopicConf\":\"\",\"queueDatas\":[" + queue("a", 4, 4, 6) + "]}",
            "{" + brokers + ",\"queueDatas\":[" + queue("a", 4, 4, 6) + "],\"topicQueueMappingByBroker\":{"
                + mapping("a", 5, 10, "0:0,1:1,2:2") + "," + mapping("c", 5, 12, "2:0,3:1") + "}}",
            "{" + brokers + ",\"queueDatas\":[" + queue("a", 4, 4, 6) + "],\"topicQueueMappingByBroker\":{"
                + mapping("a", 2, 10, "0:0,1:1") + "," + mapping("c", 4, 9, "1:1,3:0") + "}}",
            "{" + brokers + ",\"queueDatas\":[" + queue("a", 4, 4, 6) + "],\"orderTopicConf\":\"\",\"topicQueueMappingByBroker\":{"
                + mapping("a", 2, 10, "0:0,1:1") + "}}",
        };
        List<Object> rows = new ArrayList<>();
        for (String text : routes) {
            TopicRouteData route = RemotingSerializable.decode(text.getBytes(StandardCharsets.UTF_8), TopicRouteData.class);
            List<Object> publish = queues(MQClientInstance.topicRouteData2TopicPublishInfo("T", route).getMessageQueueList());
            boolean ordered = MQClientInstance.topicRouteData2TopicPublishInfo("T", route).isOrderTopic();
            List<MessageQueue> subscribed = new ArrayList<>(MQClientInstance.topicRouteData2TopicSubscribeInfo("T", route));
            Collections.sort(subscribed);
            Map<String, Object> endpoints = new TreeMap<>();
            org.apache.rocketmq.remoting.rpc.ClientMetadata.topicRouteData2EndpointsForStaticTopic("T", route)
                .forEach((queue, broker) -> endpoints.put(queue.getBrokerName() + "/" + queue.getQueueId(), broker));
            rows.add(row("route", JSON.parseObject(text), "publish", publish, "ordered", ordered,
                "subscribe", queues(subscribed), "endpoints", endpoints));
        }
        return rows;
    }

    static String queue(String broker, int read, int write, int perm) {
        return "{\"brokerName\":\"" + broker + "\",\"readQueueNums\":" + read + ",\"writeQueueNums\":" + write
            + ",\"perm\":" + perm + ",\"topicSysFlag\":0}";
    }

    static String mapping(String broker, int total, int epoch, String ids) {
        return "\"" + broker + "\":{\"topic\":\"T\",\"scope\":\"__global__\",\"totalQueues\":" + total + ",\"bname\":\""
            + broker + "\",\"epoch\":" + epoch + ",\"dirty\":false,\"currIdMap\":{\""
            + ids.replace(":", "\":").replace(",", ",\"") + "}}";
    }

    // --- process queues

    static List<Object> processQueues() throws Exception {
        List<Object> rows = new ArrayList<>();
        for (int number = 0; number < 16; number++) {
            boolean orderly = number % 2 == 1;
            ProcessQueue queue = new ProcessQueue();
            TreeMap<Long, MessageExt> waiting = new TreeMap<>();
            TreeMap<Long, MessageExt> taken = new TreeMap<>();
            long next = RANDOM.nextInt(5);
            List<Object> steps = new ArrayList<>();
            for (int step = 0; step < 40; step++) {
                Map<String, Object> made;
                int kind = RANDOM.nextInt(orderly ? 6 : 4);
                if (kind < 2) {
                    List<MessageExt> messages = new ArrayList<>();
                    List<Object> told = new ArrayList<>();
                    for (int i = RANDOM.nextInt(5); i > 0; i--) {
                        next += RANDOM.nextInt(4) == 0 ? 1 + RANDOM.nextInt(4) : 1;
                        messages.add(message(next, RANDOM.nextInt(4)));
                        told.add(Arrays.asList(next, messages.get(messages.size() - 1).getBody().length));
                    }
                    made = row("op", "put", "messages", told, "result", queue.putMessage(messages));
                    messages.forEach(each -> waiting.put(each.getQueueOffset(), each));
                } else if (!orderly) {
                    List<MessageExt> messages = some(waiting);
                    made = row("op", "remove", "offsets", offsets(messages), "result", queue.removeMessage(messages));
                    messages.forEach(each -> waiting.remove(each.getQueueOffset()));
                } else if (kind == 2 || kind == 3) {
                    int count = 1 + RANDOM.nextInt(4);
                    List<MessageExt> messages = queue.takeMessages(count);
                    made = row("op", "take", "wanted", count, "result", offsets(messages));
                    messages.forEach(each -> taken.put(each.getQueueOffset(), waiting.remove(each.getQueueOffset())));
                } else if (kind == 4) {
                    if (RANDOM.nextBoolean() && !taken.isEmpty()) {
                        made = row("op", "commit", "result", queue.commit());
                        taken.clear();
                    } else {
                        queue.rollback();
                        made = row("op", "rollback");
                        waiting.putAll(taken);
                        taken.clear();
                    }
                } else {
                    List<MessageExt> messages = some(taken);
                    queue.makeMessageToConsumeAgain(messages);
                    made = row("op", "again", "offsets", offsets(messages));
                    messages.forEach(each -> waiting.put(each.getQueueOffset(), taken.remove(each.getQueueOffset())));
                }
                made.put("count", queue.getMsgCount().get());
                made.put("size", queue.getMsgSize().get());
                made.put("span", queue.getMaxSpan());
                made.put("waiting", queue.hasTempMessage());
                steps.add(made);
            }
            rows.add(steps);
        }
        return rows;
    }

    static MessageExt message(long offset, int size) {
        MessageExt message = new MessageExt();
        message.setQueueOffset(offset);
        message.setBody(new byte[size]);
        return message;
    }

    static List<MessageExt> some(TreeMap<Long, MessageExt> from) {
        List<MessageExt> chosen = new ArrayList<>();
        for (MessageExt message : from.values()) {
            if (RANDOM.nextInt(3) == 0) {
                chosen.add(message);
            }
        }
        Collections.shuffle(chosen, RANDOM);
        return chosen;
    }

    static List<Long> offsets(List<MessageExt> messages) {
        List<Long> offsets = new ArrayList<>();
        messages.forEach(each -> offsets.add(each.getQueueOffset()));
        return offsets;
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, Object> tables = row("source", "Apache RocketMQ " + arguments[0] + ", written by ApacheTables.java",
            "allocations", allocations(), "namespaces", namespaces(), "subscriptions", subscriptions(),
            "names", names(), "signatures", signatures(), "client_ids", clientIds(), "latencies", latencies(),
            "routes", routes(), "process_queues", processQueues());
        List<String> lines = new ArrayList<>();
        for (Map.Entry<String, Object> table : tables.entrySet()) {
            if (table.getValue() instanceof String) {
                lines.add(JSON.toJSONString(table.getKey()) + ":" + JSON.toJSONString(table.getValue()));
                continue;
            }
            List<String> rows = new ArrayList<>();
            for (Object each : (List<?>) table.getValue()) {
                rows.add(JSON.toJSONString(each, JSONWriter.Feature.WriteNulls, JSONWriter.Feature.BrowserCompatible));
            }
            lines.add(JSON.toJSONString(table.getKey()) + ":[\n" + String.join(",\n", rows) + "\n]");
        }
        Files.write(Paths.get(arguments[1]), ("{\n" + String.join(",\n", lines) + "\n}\n").getBytes(StandardCharsets.UTF_8));
    }
}
