package main

import (
	"context"
	"fmt"
	"sort"
	"strconv"
	"strings"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

const queueCount = 4

func numbers(some messages) []int {
	all := []int{}
	for _, message := range some {
		number, _ := strconv.Atoi(body(message))
		all = append(all, number)
	}
	sort.Ints(all)
	return all
}

// pushConcurrent: messages from before the start and from after it, from all queues.
func pushConcurrent(stage *Stage) error {
	if err := stage.sendNumbers(0, 20, queueCount); err != nil {
		return err
	}
	inbox, err := stage.listen(stage.own())
	if err != nil {
		return err
	}
	if _, err := inbox.await(20); err != nil {
		return err
	}
	if err := stage.sendNumbers(20, 40, queueCount); err != nil {
		return err
	}
	got, err := inbox.await(40)
	queues, times := map[int]bool{}, []int32{}
	for _, message := range got {
		queues[message.Queue.QueueId] = true
		if len(times) == 0 || times[len(times)-1] != message.ReconsumeTimes {
			times = append(times, message.ReconsumeTimes)
		}
	}
	stage.facts["count"], stage.facts["received"] = len(got), numbers(got)
	stage.facts["queues"], stage.facts["times"] = len(queues), times
	return err
}

// pushOrderly: the second message of each queue is refused twice: its queue waits, in its order.
func pushOrderly(stage *Stage) error {
	for number := 0; number < 4; number++ {
		for queue := 0; queue < 2; queue++ {
			if err := stage.sendTo(queue, fmt.Sprint(queue, "/", number)); err != nil {
				return err
			}
		}
	}
	came := newInbox[string]()
	of := stage.own()
	of.options = []consumer.Option{consumer.WithConsumerOrder(true)}
	_, err := stage.push(of, func(
		ctx context.Context, some ...*primitive.MessageExt,
	) (consumer.ConsumeResult, error) {
		text := body(some[0])
		before := 0
		all, _ := came.all()
		for _, other := range all {
			if other == text {
				before++
			}
		}
		came.put(text)
		if strings.HasSuffix(text, "/1") && before < 2 {
			if orderly, ok := primitive.GetOrderlyCtx(ctx); ok {
				orderly.SuspendCurrentQueueTimeMillis = 100
			}
			return consumer.SuspendCurrentQueueAMoment, nil
		}
		return consumer.ConsumeSuccess, nil
	})
	if err != nil {
		return err
	}
	all, err := came.await(12)
	byQueue := map[string][]string{}
	for _, text := range all {
		queue, number, _ := strings.Cut(text, "/")
		byQueue[queue] = append(byQueue[queue], number)
	}
	stage.facts["by_queue"] = byQueue
	return err
}

// pushBroadcasting: each of two consumers gets everything.
func pushBroadcasting(stage *Stage) error {
	var inboxes []*Inbox[*primitive.MessageExt]
	for _, name := range []string{"first", "second"} {
		of := stage.own()
		of.instance = stage.topic + name
		of.options = []consumer.Option{consumer.WithConsumerModel(consumer.BroadCasting)}
		inbox, err := stage.listen(of)
		if err != nil {
			return err
		}
		inboxes = append(inboxes, inbox)
	}
	if err := stage.sendNumbers(0, 8, queueCount); err != nil {
		return err
	}
	received := [][]int{}
	for _, inbox := range inboxes {
		got, err := inbox.await(8)
		if err != nil {
			return err
		}
		received = append(received, numbers(got))
	}
	stage.facts["received"] = received
	return nil
}

// pushTwoTopics: one consumer of two topics, each by other tags.
func pushTwoTopics(stage *Stage) error {
	inbox := newInbox[*primitive.MessageExt]()
	options := stage.consumerOptions(stage.topic, "consumers")
	made, err := rocketmq.NewPushConsumer(options...)
	if err != nil {
		return err
	}
	wanted := map[string]string{stage.topic: "A", stage.topic + "_more": "B"}
	for topic, tag := range wanted {
		selector := consumer.MessageSelector{Type: consumer.TAG, Expression: tag}
		if err := made.Subscribe(topic, selector, into(inbox)); err != nil {
			return err
		}
	}
	if err := made.Start(); err != nil {
		return err
	}
	stage.ends = append(stage.ends, func() { _ = made.Shutdown() })
	for topic := range wanted {
		for _, tag := range []string{"A", "B", "A", "B"} {
			message := primitive.NewMessage(topic, []byte(tag)).WithTag(tag)
			if _, err := stage.send(message); err != nil {
				return err
			}
		}
	}
	all, err := inbox.await(4)
	byTopic := map[string][]string{}
	for _, message := range all {
		byTopic[message.Topic] = append(byTopic[message.Topic], body(message))
	}
	stage.facts["first"], stage.facts["second"] = byTopic[stage.topic], byTopic[stage.topic+"_more"]
	return err
}

// pushTags: AaAa and BBBB have one hash code, and a consume queue stores only the hash code.
func pushTags(stage *Stage) error {
	for number, tag := range []string{"A", "B", "C", "", "AaAa", "BBBB", "B"} {
		if _, err := stage.send(stage.message(tag, nil, fmt.Sprint(number))); err != nil {
			return err
		}
	}
	return stage.receiveSelected(consumer.TAG, "A || B || AaAa", 4)
}

// pushSQL: the last message matches: when it is received, all before it were filtered.
func pushSQL(stage *Stage) error {
	for number := 0; number <= 20; number++ {
		message := stage.message("", nil, fmt.Sprint(number))
		message.WithProperty("price", fmt.Sprint(number))
		message.WithProperty("region", []string{"eu", "us"}[number%2])
		if _, err := stage.send(message); err != nil {
			return err
		}
	}
	expression := "price > 10 AND region = 'eu' OR price BETWEEN 3 AND 4"
	return stage.receiveSelected(consumer.SQL92, expression, 7)
}

func (stage *Stage) receiveSelected(
	kind consumer.ExpressionType, expression string, count int,
) error {
	of := stage.own()
	of.selector = consumer.MessageSelector{Type: kind, Expression: expression}
	inbox, err := stage.listen(of)
	if err != nil {
		return err
	}
	got, err := inbox.await(count)
	stage.facts["received"] = bodies(got)
	return err
}
