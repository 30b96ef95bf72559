package org.apache.rocketmq.common.filter;

import org.apache.rocketmq.common.message.MessageExt;

/** The interface that an uploaded class implements. */
public interface MessageFilter {
    /** Whether the consumer group gets the message. An exception fails the whole pull. */
    boolean match(MessageExt msg, FilterContext context);
}
