package shop;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.UUID;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.remoting.protocol.RequestCode;
import org.apache.rocketmq.remoting.protocol.ResponseCode;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import trocket.junit.Broker;
import trocket.junit.Fault;
import trocket.junit.RocketMQ;

@RocketMQ
class FaultsTest {
    private final String topic = "orders-" + UUID.randomUUID();
    private DefaultMQProducer producer;

    @BeforeEach
    void startProducer(Broker broker) throws Exception {
        producer = Clients.started(new DefaultMQProducer("shop"), broker);
    }

    @AfterEach
    void close() {
        producer.shutdown();
    }

    @Test
    void aRefusedSendIsTriedAgain(Broker broker) throws Exception {
        int fault = broker.fault(Fault.answer(
            RequestCode.SEND_MESSAGE_V2, ResponseCode.SYSTEM_BUSY, "too much to do"));
        assertEquals(SendStatus.SEND_OK,
            producer.send(Clients.message(topic, "bread")).getSendStatus());
        assertEquals(1, broker.hits(fault));
    }

    @Test
    void anOrderIsNotStoredOnAFullDisk(Broker broker) throws Exception {
        broker.diskFull(true);
        producer.setRetryTimesWhenSendFailed(0);
        MQClientException refused = assertThrows(MQClientException.class,
            () -> producer.send(Clients.message(topic, "bread")));
        assertEquals(ResponseCode.SERVICE_NOT_AVAILABLE, refused.getResponseCode());
        broker.diskFull(false);
        assertEquals(SendStatus.SEND_OK,
            producer.send(Clients.message(topic, "bread")).getSendStatus());
    }
}
