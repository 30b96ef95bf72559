package main

import (
	"context"
	"fmt"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

const pullCount = 10

var pullStatuses = map[primitive.PullStatus]string{
	primitive.PullFound:         "FOUND",
	primitive.PullNoNewMsg:      "NO_NEW_MSG",
	primitive.PullNoMsgMatched:  "NO_MATCHED_MSG",
	primitive.PullOffsetIllegal: "OFFSET_ILLEGAL",
}

func (stage *Stage) puller(instance string) (rocketmq.PullConsumer, error) {
	made, err := rocketmq.NewPullConsumer(stage.consumerOptions(stage.topic, stage.topic+instance)...)
	if err == nil {
		err = made.Subscribe(stage.topic, consumer.MessageSelector{})
	}
	if err == nil {
		err = made.Start()
	}
	if err == nil {
		stage.ends = append(stage.ends, func() { _ = made.Shutdown() })
	}
	return made, err
}

// pullQueue: one queue, pulled by offset, and the offset that is kept for the group.
//
// This client's pulls wait at a queue's end, so that is not asked.
func pullQueue(stage *Stage) error {
	if err := stage.sendNumbers(0, pullCount-1, 1); err != nil {
		return err
	}
	sent, err := stage.send(stage.message("", nil, fmt.Sprint(pullCount-1)))
	if err != nil {
		return err
	}
	made, err := stage.puller("first")
	if err != nil {
		return err
	}
	pulled := []any{}
	for _, ask := range [][2]int{{0, 4}, {4, 32}, {pullCount + 5, 32}} {
		result, err := made.PullFrom(context.Background(), sent.MessageQueue, int64(ask[0]), ask[1])
		if err != nil {
			return err
		}
		pulled = append(pulled, []any{pullStatuses[result.Status], result.NextBeginOffset,
			result.MinOffset, result.MaxOffset, bodies(result.GetMessageExts())})
	}
	stage.facts["pulled"] = pulled
	return pullKept(stage, made, sent.MessageQueue)
}

// pullKept: the queue is kept only once it has been given to the consumer.
func pullKept(stage *Stage, first rocketmq.PullConsumer, queue *primitive.MessageQueue) error {
	second, err := stage.puller("second")
	if err != nil {
		return err
	}
	for over := time.Now().Add(deadline); time.Now().Before(over); time.Sleep(pause) {
		if err := first.UpdateOffset(queue, 7); err != nil {
			return err
		}
		if err := first.PersistOffset(context.Background(), stage.topic); err != nil {
			return err
		}
		result, err := second.Pull(context.Background(), 1)
		if err != nil {
			return err
		}
		stage.facts["kept"] = result.NextBeginOffset - int64(len(result.GetMessageExts()))
		if stage.facts["kept"] == int64(7) {
			return nil
		}
	}
	return nil
}

// pullSubscribed: a consumer that polls what it was given, acknowledges, and one that goes on.
func pullSubscribed(stage *Stage) error {
	if err := stage.sendNumbers(0, pullCount, 1); err != nil {
		return err
	}
	first, err := stage.puller("first")
	if err != nil {
		return err
	}
	stage.facts["first"] = poll(first, pullCount)
	if err := leave(first); err != nil {
		return err
	}
	if err := stage.sendTexts("more"); err != nil {
		return err
	}
	second, err := stage.puller("second")
	if err != nil {
		return err
	}
	stage.facts["second"] = poll(second, 1)
	return nil
}

// poll polls until it has count messages, acknowledging each.
func poll(made rocketmq.PullConsumer, count int) []string {
	texts := []string{}
	for over := time.Now().Add(deadline); len(texts) < count && time.Now().Before(over); {
		request, err := made.Poll(context.Background(), time.Second)
		if err == nil {
			texts = append(texts, bodies(request.GetMsgList())...)
			made.ACK(context.Background(), request, consumer.ConsumeSuccess)
		}
	}
	return texts
}
