import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageDecoder;

/**
 * A producer with Java's default options, which sends one message after the other and prints what became of each.
 *
 * java Steady NAMESRV TOPIC PAUSE_MS
 *
 * It prints "sent HOST:PORT" with the broker that has the message, or "failed KIND". It ends when it is killed.
 */
public final class Steady {
    public static void main(String[] args) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("steady");
        producer.setNamesrvAddr(args[0]);
        producer.start();
        while (true) {
            try {
                SendResult result = producer.send(new Message(args[1], new byte[16]));
                if (result.getSendStatus() == SendStatus.SEND_OK) {
                    Object address = MessageDecoder.decodeMessageId(result.getOffsetMsgId()).getAddress();
                    Json.say("sent " + String.valueOf(address).replaceFirst("^.*/", ""));
                } else {
                    Json.say("failed " + result.getSendStatus());
                }
            } catch (Exception error) {
                Json.say("failed " + error.getClass().getSimpleName());
            }
            Thread.sleep(Long.parseLong(args[2]));
        }
    }
}
