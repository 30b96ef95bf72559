package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
	v2 "github.com/apache/rocketmq-clients/golang/v5/protocol/v2"
)

const (
	wait      = 40 * time.Second
	pushWait  = 60 * time.Second
	invisible = 30 * time.Second
	await     = 5 * time.Second
)

// What a scenario uses: its topic, the facts that it reports, and what it has to stop.
type stage struct {
	server string
	topic  string
	facts  facts
	ends   []func() error
}

func (s *stage) end() error {
	var first error
	for number := len(s.ends) - 1; number >= 0; number-- {
		if err := s.ends[number](); err != nil && first == nil {
			first = err
		}
	}
	return first
}

func (s *stage) config(group string) *rmq.Config {
	keys := &credentials.SessionCredentials{}
	if account := strings.Fields(os.Getenv("INTEROP_ACCOUNT")); len(account) == 2 {
		keys.AccessKey, keys.AccessSecret = account[0], account[1]
	}
	return &rmq.Config{Endpoint: s.server, ConsumerGroup: group, Credentials: keys}
}

func (s *stage) producer(options ...rmq.ProducerOption) (rmq.Producer, error) {
	return s.producerOf(s.topic, options...)
}

func (s *stage) producerOf(topic string, options ...rmq.ProducerOption) (rmq.Producer, error) {
	producer, err := rmq.NewProducer(s.config(""), append(options, rmq.WithTopics(topic))...)
	if err != nil {
		return nil, err
	}
	if err := producer.Start(); err != nil {
		return nil, err
	}
	s.ends = append(s.ends, producer.GracefulStop)
	return producer, nil
}

func (s *stage) message(body string) *rmq.Message {
	return &rmq.Message{Topic: s.topic, Body: []byte(body)}
}

func (s *stage) send(producer rmq.Producer, message *rmq.Message) (*rmq.SendReceipt, error) {
	receipts, err := producer.Send(context.Background(), message)
	if err != nil {
		return nil, err
	}
	return receipts[0], nil
}

func (s *stage) sendBodies(bodies ...string) error {
	producer, err := s.producer()
	if err != nil {
		return err
	}
	for _, body := range bodies {
		if _, err := s.send(producer, s.message(body)); err != nil {
			return err
		}
	}
	return nil
}

func (s *stage) simpleConsumer(group string, filter *rmq.FilterExpression) (rmq.SimpleConsumer, error) {
	consumer, err := rmq.NewSimpleConsumer(s.config(group),
		rmq.WithSimpleAwaitDuration(await),
		rmq.WithSimpleSubscriptionExpressions(map[string]*rmq.FilterExpression{s.topic: filter}))
	if err != nil {
		return nil, err
	}
	if err := consumer.Start(); err != nil {
		return nil, err
	}
	s.ends = append(s.ends, consumer.GracefulStop)
	return consumer, nil
}

// A consumer of the scenario's own group.
func (s *stage) own() (rmq.SimpleConsumer, error) {
	return s.simpleConsumer(s.topic, rmq.SUB_ALL)
}

// Receives once; that there is nothing is no error.
func once(consumer rmq.SimpleConsumer, count int32) ([]*rmq.MessageView, error) {
	found, err := consumer.Receive(context.Background(), count, invisible)
	var status *rmq.ErrRpcStatus
	if errors.As(err, &status) && status.Code == int32(v2.Code_MESSAGE_NOT_FOUND) {
		return nil, nil
	}
	return found, err
}

// Receives, queue after queue, until this number has come; it is an error if it does not in time.
func receive(consumer rmq.SimpleConsumer, count int) ([]*rmq.MessageView, error) {
	var found []*rmq.MessageView
	for end := time.Now().Add(wait); len(found) < count && time.Now().Before(end); {
		some, err := once(consumer, 16)
		if err != nil {
			return nil, err
		}
		found = append(found, some...)
	}
	if len(found) < count {
		return nil, fmt.Errorf("%d of %d messages in %v", len(found), count, wait)
	}
	return found, nil
}

func (s *stage) pushConsumer(seen *seen, isGood func(attempt int32) bool) error {
	consumer, err := rmq.NewPushConsumer(s.config(s.topic),
		rmq.WithPushAwaitDuration(await),
		rmq.WithPushConsumptionThreadCount(4),
		rmq.WithPushSubscriptionExpressions(
			map[string]*rmq.FilterExpression{s.topic: rmq.SUB_ALL}),
		rmq.WithPushMessageListener(&rmq.FuncMessageListener{
			Consume: func(message *rmq.MessageView) rmq.ConsumerResult {
				seen.put(message)
				if isGood(message.GetDeliveryAttempt()) {
					return rmq.SUCCESS
				}
				return rmq.FAILURE
			}}))
	if err != nil {
		return err
	}
	if err := consumer.Start(); err != nil {
		return err
	}
	s.ends = append(s.ends, consumer.GracefulStop)
	return nil
}

// The bodies and attempts that a listener has seen.
type seen struct {
	lock sync.Mutex
	all  [][]any
	came chan struct{}
}

func newSeen() *seen {
	return &seen{came: make(chan struct{}, 1000)}
}

func (s *seen) put(message *rmq.MessageView) {
	s.lock.Lock()
	s.all = append(s.all, []any{string(message.GetBody()), message.GetDeliveryAttempt()})
	s.lock.Unlock()
	s.came <- struct{}{}
}

// All that came, waiting for this number or until the time is over.
func (s *seen) await(count int, limit time.Duration) [][]any {
	over := time.After(limit)
	for {
		s.lock.Lock()
		found := append([][]any{}, s.all...)
		s.lock.Unlock()
		if len(found) >= count {
			return found
		}
		select {
		case <-s.came:
		case <-over:
			return found
		}
	}
}

func bodies(messages []*rmq.MessageView) []string {
	found := []string{}
	for _, message := range messages {
		found = append(found, string(message.GetBody()))
	}
	return found
}

func sorted(items []string) []string {
	sort.Strings(items)
	return items
}
