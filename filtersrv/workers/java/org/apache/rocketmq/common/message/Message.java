package org.apache.rocketmq.common.message;

import java.util.Map;

/** A message as it was sent; read-only. */
public class Message {
    private final String topic;
    private final int flag;
    private final Map<String, String> properties;
    private final byte[] body;

    Message(String topic, int flag, Map<String, String> properties, byte[] body) {
        this.topic = topic;
        this.flag = flag;
        this.properties = properties;
        this.body = body;
    }

    public String getTopic() {
        return topic;
    }

    public int getFlag() {
        return flag;
    }

    /** The body, inflated. */
    public byte[] getBody() {
        return body;
    }

    public Map<String, String> getProperties() {
        return properties;
    }

    /** A property, or null. */
    public String getProperty(String name) {
        return properties.get(name);
    }

    /** The same as getProperty: user properties and those of RocketMQ are in one map. */
    public String getUserProperty(String name) {
        return getProperty(name);
    }

    public String getTags() {
        return getProperty(MessageConst.PROPERTY_TAGS);
    }

    /** The keys, blank-separated. */
    public String getKeys() {
        return getProperty(MessageConst.PROPERTY_KEYS);
    }

    public String getBuyerId() {
        return getProperty(MessageConst.PROPERTY_BUYER_ID);
    }

    public int getDelayTimeLevel() {
        String level = getProperty(MessageConst.PROPERTY_DELAY_TIME_LEVEL);
        return level == null ? 0 : Integer.parseInt(level);
    }

    public boolean isWaitStoreMsgOK() {
        String wait = getProperty(MessageConst.PROPERTY_WAIT_STORE_MSG_OK);
        return wait == null || Boolean.parseBoolean(wait);
    }

    @Override
    public String toString() {
        return "Message [topic=" + topic + ", flag=" + flag + ", properties=" + properties
            + ", body=" + (body == null ? 0 : body.length) + "]";
    }
}
