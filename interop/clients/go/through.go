package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const (
	keyCount     = 4
	stepsBefore  = 5
	stepsAfter   = 5
	stepPause    = 400 * time.Millisecond
	sendDeadline = 90 * time.Second
	// receiveDeadline: a connection that a client lost sight of counts as a member for 120 s.
	receiveDeadline = 170 * time.Second
	answerDeadline  = 60 * time.Second
	// tries is how often a consumer that refuses gets a message.
	tries      = 3
	errorLimit = 200
)

// through sends and consumes through a fault of the broker, and reports sends and received
// messages.
//
// A step is one message of each of four keys. Sends that fail are repeated until they are
// acknowledged, so every message reported as acknowledged must be received.
type through struct {
	stage        *Stage
	name         string
	send         string
	consume      string
	producer     rocketmq.Producer
	transactions rocketmq.TransactionProducer
	acknowledged []string
	failed       []string
	step         int
	over         chan struct{}

	mutex    sync.Mutex
	received [][]any
	lastTry  map[string]int32
}

func playThrough(stage *Stage, words []string) error {
	scenario := &through{stage: stage, name: words[0], send: words[1], consume: words[2],
		acknowledged: []string{}, failed: []string{}, over: make(chan struct{}),
		received: [][]any{}, lastTry: map[string]int32{}}
	err := scenario.play()
	close(scenario.over)
	scenario.mutex.Lock()
	defer scenario.mutex.Unlock()
	stage.facts["failed"], stage.facts["acknowledged"] = scenario.failed, scenario.acknowledged
	stage.facts["received"] = append([][]any{}, scenario.received...)
	return err
}

func (t *through) play() error {
	if err := t.openProducer(); err != nil {
		return err
	}
	if err := t.startConsumer(); err != nil {
		return err
	}
	before, err := t.sendSteps(func() bool { return t.step >= stepsBefore })
	if err != nil {
		return err
	}
	t.awaitReceived()
	ready := reach(t.name, "ready")
	during, err := t.sendSteps(func() bool {
		select {
		case <-ready:
			return true
		default:
			return false
		}
	})
	if err != nil {
		return err
	}
	end := t.step + stepsAfter
	after, err := t.sendSteps(func() bool { return t.step >= end })
	if err != nil {
		return err
	}
	t.awaitReceived()
	t.stage.facts["counts"] = []int{before, during, after}
	<-reach(t.name, "done")
	return nil
}

func keyOf(body string) int {
	word, _, _ := strings.Cut(body, "/")
	key, _ := strconv.Atoi(word)
	return key
}

// fates: a transaction of a key is committed or rolled back; of the last two only when the broker
// asks.
type fates struct{}

func fate(key int) primitive.LocalTransactionState {
	if key%2 == 0 {
		return primitive.CommitMessageState
	}
	return primitive.RollbackMessageState
}

func (fates) ExecuteLocalTransaction(message *primitive.Message) primitive.LocalTransactionState {
	if key := keyOf(string(message.Body)); key < 2 {
		return fate(key)
	}
	return undecided
}

func (fates) CheckLocalTransaction(message *primitive.MessageExt) primitive.LocalTransactionState {
	return fate(keyOf(body(message)))
}

// openProducer: one of the scenario's own where the shared one chooses queues in another way.
func (t *through) openProducer() (err error) {
	switch t.send {
	case "transaction":
		options := t.stage.producerOptions(t.stage.topic)
		t.transactions, err = rocketmq.NewTransactionProducer(fates{}, options...)
		if err == nil {
			err = t.transactions.Start()
		}
		if err == nil {
			t.stage.ends = append(t.stage.ends, func() { _ = t.transactions.Shutdown() })
		}
	case "ordered":
		t.producer, err = t.stage.newProducer(t.stage.topic,
			producer.WithQueueSelector(producer.NewHashQueueSelector()))
	default:
		t.producer, err = t.stage.producer()
	}
	return err
}

// ---- sending ----

func (t *through) sendSteps(enough func() bool) (int, error) {
	before := len(t.acknowledged)
	for !enough() {
		messages := []*primitive.Message{}
		for key := 0; key < keyCount; key++ {
			messages = append(messages, t.message(key))
		}
		if t.send == "batch" || t.send == "async" {
			if err := t.untilAcknowledged(messages); err != nil {
				return 0, err
			}
		} else {
			for _, message := range messages {
				if err := t.untilAcknowledged([]*primitive.Message{message}); err != nil {
					return 0, err
				}
			}
		}
		t.step++
		time.Sleep(stepPause)
	}
	return len(t.acknowledged) - before, nil
}

func (t *through) message(key int) *primitive.Message {
	text := fmt.Sprint(key, "/", t.step)
	message := t.stage.message(fmt.Sprint("T", key), []string{"k-" + text}, text)
	message.WithProperty("step", fmt.Sprint(t.step))
	switch t.send {
	case "delayed":
		message.WithDelayTimeLevel(1 + key%2)
	case "ordered":
		message.WithShardingKey(fmt.Sprint(key))
	}
	return message
}

func (t *through) untilAcknowledged(messages []*primitive.Message) error {
	over := time.Now().Add(sendDeadline)
	for len(messages) > 0 {
		again := []*primitive.Message{}
		for number, err := range t.attempt(messages) {
			text := string(messages[number].Body)
			switch {
			case err == nil:
				t.acknowledged = append(t.acknowledged, text)
			case time.Now().After(over):
				return fmt.Errorf("%s is not acknowledged: %w", text, err)
			default:
				t.failed = append(t.failed, shortened(fmt.Sprint(text, ": ", err)))
				// A new one: the client has put its own properties into this one.
				again = append(again, t.message(keyOf(text)))
			}
		}
		messages = again
		if len(messages) > 0 {
			time.Sleep(stepPause)
		}
	}
	return nil
}

func shortened(text string) string {
	if len(text) > errorLimit {
		return strings.ToValidUTF8(text[:errorLimit], "")
	}
	return text
}

// attempt sends once, as far as the program is concerned; the error of each.
func (t *through) attempt(messages []*primitive.Message) []error {
	if t.send == "async" {
		return t.attemptAsync(messages)
	}
	var err error
	if t.send == "transaction" {
		var result *primitive.TransactionSendResult
		result, err = t.transactions.SendMessageInTransaction(context.Background(), messages[0])
		if err == nil && result.Status != primitive.SendOK {
			err = fmt.Errorf("the half message: %v", result.Status)
		}
	} else {
		_, err = t.producer.SendSync(context.Background(), messages...)
	}
	errors := make([]error, len(messages))
	for number := range errors {
		errors[number] = err
	}
	return errors
}

func (t *through) attemptAsync(messages []*primitive.Message) []error {
	errors := make([]error, len(messages))
	answered := make(chan struct{}, len(messages))
	for number, message := range messages {
		number := number
		err := t.producer.SendAsync(context.Background(),
			func(_ context.Context, _ *primitive.SendResult, err error) {
				errors[number] = err
				answered <- struct{}{}
			}, message)
		if err != nil {
			errors[number] = err
			answered <- struct{}{}
		}
	}
	late := time.After(answerDeadline)
	for range messages {
		select {
		case <-answered:
		case <-late:
			// Not the same list: a callback may still come.
			unanswered := make([]error, len(messages))
			for number := range unanswered {
				unanswered[number] = fmt.Errorf("a callback was not called")
			}
			return unanswered
		}
	}
	return errors
}

// ---- receiving ----

func (t *through) startConsumer() error {
	if t.consume == "pull" {
		return t.startPolling()
	}
	of := t.stage.own()
	of.options = []consumer.Option{consumer.WithConsumerOrder(t.consume == "orderly"),
		consumer.WithConsumeGoroutineNums(keyCount)}
	if t.consume == "sql" {
		of.selector = consumer.MessageSelector{Type: consumer.SQL92, Expression: "step >= 0"}
	}
	_, err := t.stage.push(of, func(
		ctx context.Context, some ...*primitive.MessageExt,
	) (consumer.ConsumeResult, error) {
		for _, message := range some {
			t.take(message)
		}
		if t.consume == "retry" && some[0].ReconsumeTimes < tries-1 {
			if concurrently, ok := primitive.GetConcurrentlyCtx(ctx); ok {
				concurrently.DelayLevelWhenNextConsume = 1
			}
			return consumer.ConsumeRetryLater, nil
		}
		return consumer.ConsumeSuccess, nil
	})
	return err
}

func (t *through) take(message *primitive.MessageExt) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	text := body(message)
	t.received = append(t.received, []any{text, message.ReconsumeTimes, message.GetTags(),
		strings.TrimSpace(message.GetKeys()), message.GetProperty("step"),
		message.Topic == t.stage.topic, time.Now().UnixMilli() - message.BornTimestamp})
	if last, there := t.lastTry[text]; !there || message.ReconsumeTimes > last {
		t.lastTry[text] = message.ReconsumeTimes
	}
}

func (t *through) hasAll() bool {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	needed := int32(0)
	if t.consume == "retry" {
		needed = tries - 1
	}
	for _, text := range t.acknowledged {
		wanted := t.send != "transaction" || fate(keyOf(text)) == primitive.CommitMessageState
		if last, there := t.lastTry[text]; wanted && (!there || last < needed) {
			return false
		}
	}
	return true
}

// awaitReceived waits for all acknowledged messages; the harness reports missing ones.
func (t *through) awaitReceived() {
	for over := time.Now().Add(receiveDeadline); !t.hasAll() && time.Now().Before(over); {
		time.Sleep(pause)
	}
}

func (t *through) startPolling() error {
	made, err := t.stage.puller("one")
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-t.over:
				return
			default:
			}
			request, err := made.Poll(context.Background(), time.Second)
			if err == nil {
				for _, message := range request.GetMsgList() {
					t.take(message)
				}
				made.ACK(context.Background(), request, consumer.ConsumeSuccess)
			}
		}
	}()
	t.stage.ends = append(t.stage.ends, func() { <-ended })
	return nil
}
