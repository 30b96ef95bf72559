package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const numbersRetry = 50 * time.Millisecond

// playNumbers sends numbers in order, or takes them in order, through all faults of a chaos run;
// arguments and lines are those of interop/clients/java/src/Numbers.java.
func playNumbers(words []string) error {
	over := make(chan struct{})
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1))
		close(over)
	}()
	resolver := primitive.NewPassthroughResolver(strings.Split(words[1], ";"))
	if words[0] == "send" {
		return sendNumbersInOrder(words, resolver, over)
	}
	return takeNumbersInOrder(words, resolver, over)
}

type keySelector struct{}

func (keySelector) Select(
	message *primitive.Message, queues []*primitive.MessageQueue, _ string,
) *primitive.MessageQueue {
	key, _ := strconv.Atoi(message.GetShardingKey())
	for _, queue := range queues {
		if queue.QueueId == key%len(queues) {
			return queue
		}
	}
	return queues[0]
}

func sendNumbersInOrder(
	words []string, resolver primitive.NsResolver, over <-chan struct{},
) error {
	made, err := rocketmq.NewProducer(producer.WithNsResolver(resolver),
		producer.WithGroupName("chaos-go"), producer.WithQueueSelector(keySelector{}))
	if err == nil {
		err = made.Start()
	}
	if err != nil {
		return err
	}
	say("ready")
	pauseMs, _ := strconv.Atoi(words[3])
	next := []int64{}
	for _, word := range strings.Split(words[4], ",") {
		number, _ := strconv.ParseInt(word, 10, 64)
		next = append(next, number)
	}
	for {
		wait := time.Duration(pauseMs) * time.Millisecond
		for key := range next {
			text := fmt.Sprint(key, ":", next[key])
			message := primitive.NewMessage(words[2], []byte(text))
			message.WithShardingKey(fmt.Sprint(key))
			result, err := made.SendSync(context.Background(), message)
			switch {
			case err != nil:
				say("failed " + strings.ReplaceAll(err.Error(), "\n", " "))
				wait = numbersRetry
			case result.Status != primitive.SendOK:
				say(fmt.Sprint("failed status ", result.Status))
				wait = numbersRetry
			default:
				say(fmt.Sprint("sent ", key, " ", next[key], " ", result.MessageQueue.QueueId, " ",
					result.QueueOffset))
				next[key]++
			}
		}
		select {
		case <-over:
			return made.Shutdown()
		case <-time.After(wait):
		}
	}
}

func takeNumbersInOrder(
	words []string, resolver primitive.NsResolver, over <-chan struct{},
) error {
	made, err := rocketmq.NewPushConsumer(consumer.WithNsResolver(resolver),
		consumer.WithGroupName(words[2]), consumer.WithConsumerOrder(true),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	if err != nil {
		return err
	}
	for _, topic := range strings.Split(words[3], ",") {
		err = made.Subscribe(topic, consumer.MessageSelector{}, func(
			_ context.Context, some ...*primitive.MessageExt,
		) (consumer.ConsumeResult, error) {
			for _, message := range some {
				say(fmt.Sprint("took ", message.Topic, " ", message.Queue.QueueId, " ",
					message.QueueOffset, " ", string(message.Body)))
			}
			return consumer.ConsumeSuccess, nil
		})
		if err != nil {
			return err
		}
	}
	if err := made.Start(); err != nil {
		return err
	}
	say("ready")
	<-over
	return made.Shutdown()
}
