package org.apache.rocketmq.common.filter;

/** The consumer group for which a filter is called. */
public class FilterContext {
    private String consumerGroup;

    public String getConsumerGroup() {
        return consumerGroup;
    }

    public void setConsumerGroup(String consumerGroup) {
        this.consumerGroup = consumerGroup;
    }
}
