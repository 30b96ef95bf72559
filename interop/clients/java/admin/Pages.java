import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.admin.ConsumeStats;
import org.apache.rocketmq.remoting.protocol.body.Connection;
import org.apache.rocketmq.remoting.protocol.body.ConsumerConnection;
import org.apache.rocketmq.remoting.protocol.body.TopicList;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.apache.rocketmq.tools.admin.api.MessageTrack;

/**
 * Asks what the pages of RocketMQ's Dashboard 2.1.0 ask, in their order, by the same admin client.
 *
 * Argument: the name server's HOST:PORT. Prints one line for each question, `QUESTION: ANSWER`,
 * without anything that differs between two runs. A question that fails prints its exception.
 */
public final class Pages {
    private static final String TOPIC = "Pages_Topic";
    private static final String GROUP = "pages_group";
    private static final String ABSENT = "pages_absent";
    private static final int COUNT = 8;
    private static final long PAUSE_NS = TimeUnit.MILLISECONDS.toNanos(100);
    private static final int TRIES_MAX = 300;

    private final DefaultMQAdminExt admin = new DefaultMQAdminExt();
    private final DefaultMQProducer producer = new DefaultMQProducer(MixAll.SELF_TEST_PRODUCER_GROUP);
    private final DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(GROUP);
    private final String namesrv;

    private interface Question {
        Object ask() throws Exception;
    }

    private Pages(String namesrv) {
        this.namesrv = namesrv;
    }

    public static void main(String[] args) throws Exception {
        new Pages(args[0]).run();
        System.out.println("end");
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static void say(String name, Question question) {
        Object answer;
        try {
            answer = question.ask();
        } catch (MQClientException error) {
            answer = "code " + error.getResponseCode();
        } catch (MQBrokerException error) {
            answer = "code " + error.getResponseCode();
        } catch (Exception error) {
            answer = error.toString();
        }
        System.out.println(name + ": " + answer);
    }

    /** Ask until the answer is the expected one: statistics and offsets come late. */
    private static void sayAtLast(String name, Object expected, Question question) {
        for (int tries = 0; tries < TRIES_MAX; tries++) {
            try {
                if (expected.equals(question.ask())) {
                    break;
                }
            } catch (Exception notYet) {
                // Asked again below; the last time its exception is printed.
            }
            LockSupport.parkNanos(PAUSE_NS);
        }
        say(name, question);
    }

    private void run() throws Exception {
        admin.setNamesrvAddr(namesrv);
        admin.setInstanceName("pages_admin");
        admin.start();
        String address = admin.examineBrokerClusterInfo().getBrokerAddrTable().values().iterator()
            .next().selectBrokerAddr();
        topicAndGroup(address);
        producer.setNamesrvAddr(namesrv);
        producer.setInstanceName("pages_producer");
        producer.start();
        SendResult last = null;
        for (int number = 0; number < COUNT; number++) {
            byte[] body = ("message-" + number).getBytes(StandardCharsets.UTF_8);
            last = producer.send(new Message(TOPIC, "tag", "key-" + number, body));
        }
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName("pages_consumer");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(TOPIC, "*");
        consumer.registerMessageListener((MessageListenerConcurrently)
            (messages, context) -> ConsumeConcurrentlyStatus.CONSUME_SUCCESS);
        consumer.start();
        clusterPage(address);
        topicPage();
        consumerPage(address);
        messagePage(last.getMsgId());
        deletions(address);
    }

    private void topicAndGroup(String address) throws Exception {
        TopicConfig config = new TopicConfig(TOPIC, 2, 2);
        config.setAttributes(Collections.singletonMap("+message.type", "NORMAL"));
        admin.createAndUpdateTopicConfig(address, config);
        say("topic/examineTopicConfig", () -> {
            TopicConfig found = admin.examineTopicConfig(address, TOPIC);
            return found.getReadQueueNums() + " " + found.getPerm() + " " + found.getAttributes();
        });
        say("topic/list.queryTopicType", () -> admin.getUserTopicConfig(address, false, 5000)
            .getTopicConfigTable().get(TOPIC).getAttributes());
        SubscriptionGroupConfig group = new SubscriptionGroupConfig();
        group.setGroupName(GROUP);
        group.setRetryMaxTimes(3);
        admin.createAndUpdateSubscriptionGroupConfig(address, group);
        say("consumer/examineSubscriptionGroupConfig", () -> {
            SubscriptionGroupConfig found = admin.examineSubscriptionGroupConfig(address, GROUP);
            return found.getRetryMaxTimes() + " " + found.isConsumeMessageOrderly();
        });
        sayAtLast("topic/route", 1, () -> admin.examineTopicRouteInfo(TOPIC).getQueueDatas().size());
    }

    private void clusterPage(String address) {
        say("cluster/list", () -> {
            String[] rates =
                admin.fetchBrokerRuntimeStats(address).getTable().get("getTotalTps").trim().split(" ");
            for (String rate : rates) {
                new BigDecimal(rate);
            }
            return rates.length + " rates";
        });
        say("cluster/brokerConfig",
            () -> admin.getBrokerConfig(address).getProperty("autoCreateTopicEnable"));
    }

    private void topicPage() {
        say("topic/list", () -> admin.fetchAllTopicList().getTopicList().contains(TOPIC));
        say("topic/list, of the system", () -> {
            TopicList system = producer.getDefaultMQProducerImpl().getMqClientFactory()
                .getMQClientAPIImpl().getSystemTopicList(5000);
            return system.getTopicList().contains("SELF_TEST_TOPIC");
        });
        say("topic/stats", () -> {
            long[] sum = {0};
            admin.examineTopicStats(TOPIC).getOffsetTable().values()
                .forEach(offset -> sum[0] += offset.getMaxOffset());
            return sum[0];
        });
        sayAtLast("topic/queryTopicConsumerInfo", Collections.singleton(GROUP),
            () -> admin.queryTopicConsumeByWho(TOPIC).getGroupList());
    }

    private void consumerPage(String address) {
        sayAtLast("consumer/group", 0L, () -> admin.examineConsumeStats(GROUP).computeTotalDiff());
        sayAtLast("consumer/queryTopicByConsumer", COUNT, () -> {
            ConsumeStats stats = admin.examineConsumeStats(address, GROUP, null, 3000);
            return (int) stats.getOffsetTable().values().stream()
                .mapToLong(offset -> offset.getConsumerOffset()).sum();
        });
        say("consumer/consumerConnection", () -> {
            ConsumerConnection found = admin.examineConsumerConnectionInfo(GROUP, address);
            Connection connection = found.getConnectionSet().iterator().next();
            Set<String> topics = new TreeSet<>(found.getSubscriptionTable().keySet());
            return connection.getLanguage() + " " + found.getConsumeType() + " "
                + found.getMessageModel() + " " + topics;
        });
        say("consumer/consumerConnection, offline",
            () -> admin.examineConsumerConnectionInfo(ABSENT, address).getConnectionSet().size());
        say("consumer/consumerRunningInfo", () -> {
            return new TreeSet<>(admin.getConsumerRunningInfo(GROUP, consumerId(), true)
                .getStatusTable().keySet());
        });
        say("producer/producerConnection", () -> admin.examineProducerConnectionInfo(
            MixAll.SELF_TEST_PRODUCER_GROUP, TOPIC).getConnectionSet().size());
    }

    private String consumerId() throws Exception {
        return admin.examineConsumerConnectionInfo(GROUP).getConnectionSet().iterator().next()
            .getClientId();
    }

    private void messagePage(String messageId) {
        say("message/queryMessageByTopic", this::countByTime);
        say("message/queryMessageByTopicAndKey", () -> admin.queryMessage(
            TOPIC, "key-3", 64, 0, System.currentTimeMillis()).getMessageList().size());
        say("message/viewMessage", () -> {
            MessageExt found = admin.viewMessage(TOPIC, messageId);
            StringBuilder text = new StringBuilder(new String(found.getBody(), StandardCharsets.UTF_8));
            for (MessageTrack track : admin.messageTrackDetail(found)) {
                text.append(' ').append(track.getConsumerGroup()).append(' ')
                    .append(track.getTrackType());
            }
            return text;
        });
        say("message/consumeMessageDirectly", () -> admin.consumeMessageDirectly(
            GROUP, consumerId(), TOPIC, messageId).getConsumeResult());
    }

    private Object countByTime() throws Exception {
        DefaultMQPullConsumer puller = new DefaultMQPullConsumer(MixAll.TOOLS_CONSUMER_GROUP);
        puller.setNamesrvAddr(namesrv);
        puller.setInstanceName("pages_puller");
        puller.start();
        try {
            int count = 0;
            for (MessageQueue queue : puller.fetchSubscribeMessageQueues(TOPIC)) {
                long offset = puller.searchOffset(queue, 0);
                long end = puller.searchOffset(queue, System.currentTimeMillis());
                while (offset <= end) {
                    PullResult result = puller.pull(queue, "*", offset, 32);
                    if (result.getPullStatus() != PullStatus.FOUND) {
                        break;
                    }
                    count += result.getMsgFoundList().size();
                    offset = result.getNextBeginOffset();
                }
            }
            return count;
        } finally {
            puller.shutdown();
        }
    }

    private void deletions(String address) {
        say("consumer/resetOffset",
            () -> admin.resetOffsetByTimestamp(TOPIC, GROUP, 0, true).size());
        consumer.shutdown();
        say("consumer/deleteSubGroup", () -> {
            admin.deleteSubscriptionGroup(address, GROUP, true);
            admin.deleteTopicInBroker(Collections.singleton(address), "%RETRY%" + GROUP);
            admin.deleteTopicInNameServer(Collections.singleton(namesrv), "%RETRY%" + GROUP);
            return "done";
        });
        say("topic/deleteTopic", () -> {
            admin.deleteTopicInBroker(Collections.singleton(address), TOPIC);
            admin.deleteTopicInNameServer(Collections.singleton(namesrv), TOPIC);
            return admin.fetchAllTopicList().getTopicList().contains(TOPIC);
        });
    }
}
