package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

const timerStep = time.Second

// laterRetry: a message that always fails: two more tries, then the dead letters.
func laterRetry(stage *Stage) error {
	result, err := stage.send(stage.message("Tag", []string{"key"}, "fails"))
	if err != nil {
		return err
	}
	tries := newInbox[any]()
	of := stage.own()
	of.options = []consumer.Option{consumer.WithMaxReconsumeTimes(2)}
	_, err = stage.push(of, func(
		ctx context.Context, some ...*primitive.MessageExt,
	) (consumer.ConsumeResult, error) {
		for _, m := range some {
			tries.put([]any{m.ReconsumeTimes, m.Topic == stage.topic, m.GetTags(), m.GetKeys(),
				m.MsgId == result.MsgID})
		}
		if concurrently, ok := primitive.GetConcurrentlyCtx(ctx); ok {
			concurrently.DelayLevelWhenNextConsume = 1
		}
		return consumer.ConsumeRetryLater, nil
	})
	if err != nil {
		return err
	}
	dead, err := stage.dead()
	stage.facts["tries"], _ = tries.all()
	if err != nil {
		return err
	}
	stage.facts["dead"] = []any{body(dead), dead.ReconsumeTimes,
		dead.GetProperty("RETRY_TOPIC") == stage.topic,
		dead.GetProperty("ORIGIN_MESSAGE_ID") == result.OffsetMsgID}
	return nil
}

// dead is the first of the group's dead letters.
func (stage *Stage) dead() (*primitive.MessageExt, error) {
	undertaker := stage.own()
	undertaker.topic, undertaker.group = "%DLQ%"+stage.topic, stage.topic+"_dead"
	inbox, err := stage.listen(undertaker)
	if err != nil {
		return nil, err
	}
	got, err := inbox.await(1)
	if err != nil {
		return nil, err
	}
	return got[0], nil
}

// laterOrderly: an orderly consumer that always refuses one message gets the next when that one is
// dead.
func laterOrderly(stage *Stage) error {
	if err := stage.sendTexts("poison", "next"); err != nil {
		return err
	}
	came := newInbox[[]any]()
	of := stage.own()
	of.options = []consumer.Option{consumer.WithConsumerOrder(true), consumer.WithMaxReconsumeTimes(1)}
	_, err := stage.push(of, func(
		ctx context.Context, some ...*primitive.MessageExt,
	) (consumer.ConsumeResult, error) {
		came.put([]any{body(some[0]), some[0].ReconsumeTimes})
		if orderly, ok := primitive.GetOrderlyCtx(ctx); ok {
			orderly.SuspendCurrentQueueTimeMillis = 100
		}
		if body(some[0]) == "next" {
			return consumer.ConsumeSuccess, nil
		}
		return consumer.SuspendCurrentQueueAMoment, nil
	})
	if err != nil {
		return err
	}
	dead, err := stage.dead()
	if err == nil {
		stage.facts["dead"] = []any{body(dead), dead.ReconsumeTimes}
		_, err = came.until(func(all [][]any) bool { return all[len(all)-1][0] == "next" })
	}
	stage.facts["came"], _ = came.all()
	return err
}

func laterLevel(stage *Stage) error {
	message := stage.message("Tag", []string{"key"}, "level-1").WithDelayTimeLevel(1)
	result, err := stage.send(message)
	if err != nil {
		return err
	}
	got, err := stage.receive(1)
	if err != nil {
		return err
	}
	level, _ := strconv.Atoi(got[0].GetProperty("DELAY"))
	stage.facts["status"] = status(result)
	stage.facts["received"] = []any{body(got[0]), got[0].GetTags(), got[0].GetKeys(),
		got[0].Topic == stage.topic, level}
	stage.facts["early"] = time.Now().UnixMilli()-got[0].BornTimestamp < 1000
	return nil
}

// laterTimer: the last sent comes first; none comes more than the timer's step too early.
//
// This client has no setters for it; its users put the property.
func laterTimer(stage *Stage) error {
	inbox, err := stage.listen(stage.own())
	if err != nil {
		return err
	}
	now := time.Now()
	due := map[string]time.Time{}
	for _, timer := range []struct {
		property string
		value    int64
		after    time.Duration
	}{
		{"TIMER_DELAY_SEC", 7, 7 * time.Second},
		{"TIMER_DELAY_MS", 4500, 4500 * time.Millisecond},
		{"TIMER_DELIVER_MS", now.UnixMilli() + 2000, 2 * time.Second},
	} {
		message := stage.message("", nil, timer.property)
		message.WithProperty(timer.property, fmt.Sprint(timer.value))
		due[timer.property] = now.Add(timer.after)
		if _, err := stage.send(message); err != nil {
			return err
		}
	}
	early := map[string]bool{}
	for count := 1; count <= len(due); count++ {
		got, err := inbox.await(count)
		stage.facts["received"] = bodies(got)
		if err != nil {
			return err
		}
		text := body(got[count-1])
		early[text] = time.Now().Before(due[text].Add(-timerStep))
	}
	stage.facts["early"] = early
	return nil
}

var states = map[primitive.LocalTransactionState]string{
	primitive.CommitMessageState:   "COMMIT_MESSAGE",
	primitive.RollbackMessageState: "ROLLBACK_MESSAGE",
	undecided:                      "UNKNOW",
}

// askedAbout counts what the broker asked about, by body.
type askedAbout struct {
	mutex sync.Mutex
	times map[string]int
}

func (asked *askedAbout) ExecuteLocalTransaction(
	message *primitive.Message,
) primitive.LocalTransactionState {
	switch string(message.Body) {
	case "commits":
		return primitive.CommitMessageState
	case "rolls-back":
		return primitive.RollbackMessageState
	}
	return undecided
}

func (asked *askedAbout) CheckLocalTransaction(
	message *primitive.MessageExt,
) primitive.LocalTransactionState {
	asked.mutex.Lock()
	defer asked.mutex.Unlock()
	asked.times[body(message)]++
	if body(message) == "asks" {
		return primitive.CommitMessageState
	}
	return primitive.RollbackMessageState
}

func (asked *askedAbout) count() map[string]int {
	asked.mutex.Lock()
	defer asked.mutex.Unlock()
	counts := map[string]int{}
	for text, times := range asked.times {
		counts[text] = times
	}
	return counts
}

// transaction: some commit, some roll back, some are asked about.
func transaction(stage *Stage) error {
	asked := &askedAbout{times: map[string]int{}}
	made, err := rocketmq.NewTransactionProducer(asked, stage.producerOptions(stage.topic)...)
	if err != nil {
		return err
	}
	if err := made.Start(); err != nil {
		return err
	}
	stage.ends = append(stage.ends, func() { _ = made.Shutdown() })
	sent := map[string]any{}
	for _, text := range []string{"rolls-back", "asks-rolls-back", "asks", "commits"} {
		message := stage.message("Tag", []string{"key-" + text}, text)
		result, err := made.SendMessageInTransaction(context.Background(), message)
		if err != nil {
			return err
		}
		sent[text] = []string{status(result.SendResult), states[result.State]}
	}
	stage.facts["sent"] = sent
	got, err := stage.receive(2)
	texts := []string{}
	for _, message := range got {
		texts = append(texts, body(message)+" "+message.GetKeys())
	}
	for over := time.Now().Add(deadline); len(asked.count()) < 2 && time.Now().Before(over); {
		time.Sleep(pause)
	}
	stage.facts["received"], stage.facts["asked"] = sorted(texts), asked.count()
	return err
}
