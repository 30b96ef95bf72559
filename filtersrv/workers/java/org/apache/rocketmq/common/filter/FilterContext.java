package org.apache.rocketmq.common.filter;

/** On whose behalf a filter is asked. */
public class FilterContext {
    private String consumerGroup;

    public String getConsumerGroup() {
        return consumerGroup;
    }

    public void setConsumerGroup(String consumerGroup) {
        this.consumerGroup = consumerGroup;
    }
}
