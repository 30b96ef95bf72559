package shop;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.util.UUID;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

class OrdersTest {
    private static final long PATIENCE_S = 60; // a busy machine needs some; nothing waits for it

    // Tests share the broker, so each has a topic and a group to itself.
    private final String topic = "orders-" + UUID.randomUUID();
    private final String group = "billing-" + UUID.randomUUID();
    private final BlockingQueue<MessageExt> received = new LinkedBlockingQueue<>();
    private DefaultMQProducer producer;
    private DefaultMQPushConsumer consumer;

    @BeforeEach
    void startProducer() throws Exception {
        producer = new DefaultMQProducer("shop");
        producer.setNamesrvAddr(Trocket.nameServer());
        producer.start();
    }

    @AfterEach
    void close() {
        if (consumer != null) {
            consumer.shutdown();
        }
        producer.shutdown();
    }

    private void consume(MessageListenerConcurrently listener) throws Exception {
        consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(Trocket.nameServer());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener(listener);
        consumer.start();
    }

    private SendResult send(String body) throws Exception {
        return producer.send(
            new Message(topic, "created", "order-1", body.getBytes(StandardCharsets.UTF_8)));
    }

    @Test
    void anOrderArrives() throws Exception {
        assertEquals(SendStatus.SEND_OK, send("bread").getSendStatus());
        consume((messages, context) -> {
            received.addAll(messages);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        MessageExt order = received.poll(PATIENCE_S, TimeUnit.SECONDS);
        assertEquals("bread", new String(order.getBody(), StandardCharsets.UTF_8));
        assertEquals("order-1", order.getKeys());
    }

    @Test
    void anOrderThatFailsComesAgain() throws Exception {
        send("bread");
        AtomicInteger tries = new AtomicInteger();
        consume((messages, context) -> {
            context.setDelayLevelWhenNextConsume(1); // after a second, not after ten
            if (tries.incrementAndGet() == 1) {
                return ConsumeConcurrentlyStatus.RECONSUME_LATER;
            }
            received.addAll(messages);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        MessageExt again = received.poll(PATIENCE_S, TimeUnit.SECONDS);
        assertTrue(again.getReconsumeTimes() >= 1);
    }
}
