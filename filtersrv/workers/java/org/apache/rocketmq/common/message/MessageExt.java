package org.apache.rocketmq.common.message;

import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.net.UnknownHostException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;

/** A message as a broker stored it; read-only. */
public class MessageExt extends Message {
    private static final int PORT_SIZE = 4;

    private int queueId;
    private long queueOffset;
    private long commitLogOffset;
    private int sysFlag;
    private long bornTimestamp;
    private byte[] bornHost;
    private long storeTimestamp;
    private byte[] storeHost;
    private int reconsumeTimes;
    private long preparedTransactionOffset;
    private int storeSize;
    private int bodyCRC;

    private MessageExt(String topic, int flag, Map<String, String> properties, byte[] body) {
        super(topic, flag, properties, body);
    }

    /** The message in a frame; the fields are listed in `inside/frames.py`. */
    public static MessageExt read(ByteBuffer frame) {
        int queueId = frame.getInt();
        long queueOffset = frame.getLong();
        long commitLogOffset = frame.getLong();
        int flag = frame.getInt();
        int sysFlag = frame.getInt();
        long bornTimestamp = frame.getLong();
        long storeTimestamp = frame.getLong();
        int reconsumeTimes = frame.getInt();
        long preparedTransactionOffset = frame.getLong();
        int storeSize = frame.getInt();
        int bodyCRC = frame.getInt();
        int bornHostSize = frame.get();
        int storeHostSize = frame.get();
        int topicSize = frame.getShort() & 0xFFFF;
        int propertiesSize = frame.getInt();
        byte[] bornHost = take(frame, bornHostSize);
        byte[] storeHost = take(frame, storeHostSize);
        String topic = new String(take(frame, topicSize), StandardCharsets.UTF_8);
        String properties = new String(take(frame, propertiesSize), StandardCharsets.UTF_8);
        byte[] body = take(frame, frame.remaining());

        MessageExt message = new MessageExt(topic, flag, parse(properties), body);
        message.queueId = queueId;
        message.queueOffset = queueOffset;
        message.commitLogOffset = commitLogOffset;
        message.sysFlag = sysFlag;
        message.bornTimestamp = bornTimestamp;
        message.bornHost = bornHost;
        message.storeTimestamp = storeTimestamp;
        message.storeHost = storeHost;
        message.reconsumeTimes = reconsumeTimes;
        message.preparedTransactionOffset = preparedTransactionOffset;
        message.storeSize = storeSize;
        message.bodyCRC = bodyCRC;
        return message;
    }

    private static byte[] take(ByteBuffer frame, int size) {
        byte[] taken = new byte[size];
        frame.get(taken);
        return taken;
    }

    /** `name 0x01 value 0x02 ...`; what lacks either is dropped, as in common/message_properties.py. */
    private static Map<String, String> parse(String text) {
        Map<String, String> properties = new HashMap<>();
        for (int start = 0; start < text.length(); ) {
            int end = text.indexOf('\u0002', start);
            if (end < 0) {
                end = text.length();
            }
            int equals = text.indexOf('\u0001', start);
            if (equals > start && equals < end - 1) {
                properties.put(text.substring(start, equals), text.substring(equals + 1, end));
            }
            start = end + 1;
        }
        return properties;
    }

    public int getQueueId() {
        return queueId;
    }

    public long getQueueOffset() {
        return queueOffset;
    }

    public long getCommitLogOffset() {
        return commitLogOffset;
    }

    public int getSysFlag() {
        return sysFlag;
    }

    public long getBornTimestamp() {
        return bornTimestamp;
    }

    public SocketAddress getBornHost() {
        return address(bornHost);
    }

    public String getBornHostString() {
        return address(bornHost).getAddress().getHostAddress();
    }

    /** The address: there is no name service here. */
    public String getBornHostNameString() {
        return getBornHostString();
    }

    public long getStoreTimestamp() {
        return storeTimestamp;
    }

    public SocketAddress getStoreHost() {
        return address(storeHost);
    }

    private static InetSocketAddress address(byte[] host) {
        ByteBuffer buffer = ByteBuffer.wrap(host);
        byte[] ip = take(buffer, host.length - PORT_SIZE);
        try {
            return new InetSocketAddress(InetAddress.getByAddress(ip), buffer.getInt() & 0xFFFF);
        } catch (UnknownHostException impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    /** The producer's id of the message, or else the broker's, as a consumer sees it. */
    public String getMsgId() {
        String id = getProperty(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX);
        if (id != null) {
            return id;
        }
        StringBuilder offsetId = new StringBuilder();
        for (byte each : storeHost) {
            offsetId.append(String.format("%02X", each));
        }
        return offsetId.append(String.format("%016X", commitLogOffset)).toString();
    }

    public int getReconsumeTimes() {
        return reconsumeTimes;
    }

    public long getPreparedTransactionOffset() {
        return preparedTransactionOffset;
    }

    public int getStoreSize() {
        return storeSize;
    }

    public int getBodyCRC() {
        return bodyCRC;
    }

    @Override
    public String toString() {
        return "MessageExt [queueId=" + queueId + ", storeSize=" + storeSize + ", queueOffset="
            + queueOffset + ", sysFlag=" + sysFlag + ", bornTimestamp=" + bornTimestamp
            + ", bornHost=" + getBornHost() + ", storeTimestamp=" + storeTimestamp + ", storeHost="
            + getStoreHost() + ", msgId=" + getMsgId() + ", commitLogOffset=" + commitLogOffset
            + ", bodyCRC=" + bodyCRC + ", reconsumeTimes=" + reconsumeTimes
            + ", preparedTransactionOffset=" + preparedTransactionOffset + ", toString()="
            + super.toString() + "]";
    }
}
