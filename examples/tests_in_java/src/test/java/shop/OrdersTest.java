package shop;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.UUID;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import trocket.junit.Broker;
import trocket.junit.RocketMQ;

@RocketMQ(config = "enablePropertyFilter=true")
class OrdersTest {
    // Tests share the broker, so each has a topic and a group to itself.
    private final String topic = "orders-" + UUID.randomUUID();
    private final String group = "billing-" + UUID.randomUUID();
    private final BlockingQueue<MessageExt> received = new LinkedBlockingQueue<>();
    private final Broker broker;
    private DefaultMQProducer producer;
    private DefaultMQPushConsumer consumer;

    OrdersTest(Broker broker) {
        this.broker = broker;
    }

    @BeforeEach
    void startProducer() throws Exception {
        producer = Clients.started(new DefaultMQProducer("shop"), broker);
    }

    @AfterEach
    void close() {
        if (consumer != null) {
            consumer.shutdown();
        }
        producer.shutdown();
    }

    private void consume(MessageListenerConcurrently listener) throws Exception {
        consume(MessageSelector.byTag("*"), listener);
    }

    private void consume(MessageSelector selector, MessageListenerConcurrently listener)
        throws Exception {
        consumer = Clients.consumer(broker, group, topic);
        consumer.subscribe(topic, selector);
        consumer.registerMessageListener(listener);
        consumer.start();
    }

    @Test
    void anOrderArrives() throws Exception {
        assertEquals(SendStatus.SEND_OK,
            producer.send(Clients.message(topic, "bread")).getSendStatus());
        consume((messages, context) -> {
            received.addAll(messages);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        MessageExt order = Clients.next(received);
        assertEquals("bread", Clients.body(order));
        assertEquals(Clients.KEY, order.getKeys());
    }

    @Test
    void anOrderThatFailsComesAgain() throws Exception {
        producer.send(Clients.message(topic, "bread"));
        AtomicInteger tries = new AtomicInteger();
        consume((messages, context) -> {
            context.setDelayLevelWhenNextConsume(1); // after a second, not after ten
            if (tries.incrementAndGet() == 1) {
                return ConsumeConcurrentlyStatus.RECONSUME_LATER;
            }
            received.addAll(messages);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        assertTrue(Clients.next(received).getReconsumeTimes() >= 1);
    }

    @Test
    void anOrderIsSelectedByItsPrice() throws Exception {
        for (int price : new int[] {40, 400}) {
            Message order = Clients.message(topic, "costs " + price);
            order.putUserProperty("price", "" + price);
            producer.send(order);
        }
        consume(MessageSelector.bySql("price > 100"), (messages, context) -> {
            received.addAll(messages);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        assertEquals("costs 400", Clients.body(Clients.next(received)));
    }
}
