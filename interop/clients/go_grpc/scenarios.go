package main

import (
	"context"
	"fmt"
	"sort"
	"sync"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
	v2 "github.com/apache/rocketmq-clients/golang/v5/protocol/v2"
)

const deadWait = 25 * time.Second

func view(message *rmq.MessageView) []any {
	return []any{string(message.GetBody()), message.GetDeliveryAttempt(), *message.GetTag(),
		message.GetKeys(), message.GetProperties()}
}

// Received, hidden for longer, received again, acknowledged, and gone.
func simple(s *stage) error {
	producer, err := s.producer()
	if err != nil {
		return err
	}
	message := s.message("one")
	message.SetTag("a")
	message.SetKeys("k1", "k2")
	message.AddProperty("colour", "red")
	if _, err := s.send(producer, message); err != nil {
		return err
	}
	consumer, err := s.own()
	if err != nil {
		return err
	}
	first, err := receive(consumer, 1)
	if err != nil {
		return err
	}
	s.facts["first"] = view(first[0])
	if err := consumer.ChangeInvisibleDuration(first[0], 3*time.Second); err != nil {
		return err
	}
	again, err := receive(consumer, 1)
	if err != nil {
		return err
	}
	s.facts["again"] = []any{string(again[0].GetBody()), again[0].GetDeliveryAttempt()}
	s.facts["same_id"] = again[0].GetMessageId() == first[0].GetMessageId()
	if err := consumer.Ack(context.Background(), again[0]); err != nil {
		return err
	}
	more, err := once(consumer, 16)
	s.facts["after_ack"] = len(more)
	return err
}

func simpleInPages(s *stage) error {
	numbers := []string{}
	for number := 10; number < 50; number++ {
		numbers = append(numbers, fmt.Sprint(number))
	}
	if err := s.sendBodies(numbers...); err != nil {
		return err
	}
	consumer, err := s.own()
	if err != nil {
		return err
	}
	found, err := receive(consumer, 40)
	if err != nil {
		return err
	}
	s.facts["received"] = sorted(bodies(found))
	for _, message := range found {
		if err := consumer.Ack(context.Background(), message); err != nil {
			return err
		}
	}
	other, err := s.simpleConsumer(s.topic+"_other", rmq.SUB_ALL)
	if err != nil {
		return err
	}
	found, err = receive(other, 40)
	s.facts["another_group"] = len(found)
	return err
}

func push(s *stage) error {
	all := newSeen()
	if err := s.pushConsumer(all, func(int32) bool { return true }); err != nil {
		return err
	}
	if err := s.sendBodies("0", "1", "2", "3", "4", "5", "6", "7"); err != nil {
		return err
	}
	found := all.await(8, pushWait)
	sort.Slice(found, func(i, j int) bool { return fmt.Sprint(found[i]) < fmt.Sprint(found[j]) })
	s.facts["received"] = found
	return nil
}

func pushRetry(s *stage) error {
	if err := s.sendBodies("again"); err != nil {
		return err
	}
	all := newSeen()
	if err := s.pushConsumer(all, func(attempt int32) bool { return attempt == 3 }); err != nil {
		return err
	}
	s.facts["received"] = all.await(3, pushWait)
	return nil
}

func pushDead(s *stage) error {
	if err := s.sendBodies("dead"); err != nil {
		return err
	}
	all := newSeen()
	if err := s.pushConsumer(all, func(int32) bool { return false }); err != nil {
		return err
	}
	s.facts["received"] = all.await(2, pushWait)
	s.facts["more"] = len(all.await(3, deadWait)) - 2
	return nil
}

func fifo(s *stage) error {
	producer, err := s.producer()
	if err != nil {
		return err
	}
	for number := range 6 {
		message := s.message(fmt.Sprint(number))
		message.SetMessageGroup("one group")
		if _, err := s.send(producer, message); err != nil {
			return err
		}
	}
	all := newSeen()
	if err := s.pushConsumer(all, func(int32) bool { return true }); err != nil {
		return err
	}
	s.facts["received"] = all.await(6, pushWait)
	return nil
}

// What is received is sent to another topic as it is, and received there for the first time.
func forward(s *stage) error {
	producer, err := s.producer()
	if err != nil {
		return err
	}
	message := s.message("one")
	message.SetTag("a")
	message.SetKeys("k")
	message.AddProperty("colour", "red")
	if _, err := s.send(producer, message); err != nil {
		return err
	}
	consumer, err := s.own()
	if err != nil {
		return err
	}
	first, err := receive(consumer, 1)
	if err != nil {
		return err
	}
	copied := &rmq.Message{Topic: s.topic + "_next", Body: first[0].GetBody()}
	copied.SetTag(*first[0].GetTag())
	copied.SetKeys(first[0].GetKeys()...)
	for key, value := range first[0].GetProperties() {
		copied.AddProperty(key, value)
	}
	if _, err := s.send(producer, copied); err != nil {
		return err
	}
	if err := consumer.Ack(context.Background(), first[0]); err != nil {
		return err
	}
	if err := consumer.Subscribe(s.topic+"_next", rmq.SUB_ALL); err != nil {
		return err
	}
	second, err := receive(consumer, 1)
	if err != nil {
		return err
	}
	s.facts["received"] = []any{view(first[0]), view(second[0])}
	if err := consumer.Ack(context.Background(), second[0]); err != nil {
		return err
	}
	more, err := once(consumer, 16)
	s.facts["after_ack"] = len(more)
	return err
}

func delay(s *stage) error {
	producer, err := s.producer()
	if err != nil {
		return err
	}
	due := time.Now().Add(4 * time.Second).Truncate(time.Millisecond)
	message := s.message("late")
	message.SetDelayTimestamp(due)
	if _, err := s.send(producer, message); err != nil {
		return err
	}
	consumer, err := s.own()
	if err != nil {
		return err
	}
	found, err := receive(consumer, 1)
	if err != nil {
		return err
	}
	s.facts["received"] = bodies(found)
	// 5.x rounds to its timer's precision, a second.
	s.facts["early"] = time.Now().Before(due.Add(-time.Second))
	stamp := found[0].GetDeliveryTimestamp()
	s.facts["timestamp"] = stamp != nil && stamp.Equal(due)
	return nil
}

func recall(s *stage) error {
	producer, err := s.producer()
	if err != nil {
		return err
	}
	due := time.Now().Add(12 * time.Second)
	var receipts []*rmq.SendReceipt
	for _, body := range []string{"recalled", "kept"} {
		message := s.message(body)
		message.SetDelayTimestamp(due)
		receipt, err := s.send(producer, message)
		if err != nil {
			return err
		}
		receipts = append(receipts, receipt)
	}
	id, err := producer.Recall(context.Background(), s.topic, receipts[0].RecallHandle)
	if err != nil {
		return err
	}
	s.facts["same_id"] = id == receipts[0].MessageID
	consumer, err := s.own()
	if err != nil {
		return err
	}
	found, err := receive(consumer, 1)
	if err != nil {
		return err
	}
	more, err := once(consumer, 16)
	s.facts["received"] = bodies(append(found, more...))
	return err
}

// The bodies of which a checker was asked; the half message "asked" is committed then.
type checked struct {
	lock sync.Mutex
	all  map[string]bool
}

func (c *checked) check(message *rmq.MessageView) rmq.TransactionResolution {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.all[string(message.GetBody())] = true
	if string(message.GetBody()) == "asked" {
		return rmq.COMMIT
	}
	return rmq.ROLLBACK
}

func (c *checked) bodies() []string {
	c.lock.Lock()
	defer c.lock.Unlock()
	found := []string{}
	for body := range c.all {
		found = append(found, body)
	}
	return sorted(found)
}

func transaction(s *stage) error {
	asked := &checked{all: map[string]bool{}}
	producer, err := s.producer(
		rmq.WithTransactionChecker(&rmq.TransactionChecker{Check: asked.check}))
	if err != nil {
		return err
	}
	for _, body := range []string{"committed", "rolled back", "asked", "asked in vain"} {
		one := producer.BeginTransaction()
		_, err := producer.SendWithTransaction(context.Background(), s.message(body), one)
		if err == nil && body == "committed" {
			err = one.Commit()
		} else if err == nil && body == "rolled back" {
			err = one.RollBack()
		}
		if err != nil {
			return err
		}
	}
	consumer, err := s.own()
	if err != nil {
		return err
	}
	received, err := receive(consumer, 2)
	if err != nil {
		return err
	}
	for _, message := range received {
		if err := consumer.Ack(context.Background(), message); err != nil {
			return err
		}
	}
	for end := time.Now().Add(wait / 2); len(asked.bodies()) < 2 && time.Now().Before(end); {
		more, err := once(consumer, 16)
		if err != nil {
			return err
		}
		received = append(received, more...)
	}
	s.facts["received"] = sorted(bodies(received))
	s.facts["checked"] = asked.bodies()
	return nil
}

func filters(s *stage) error {
	producer, err := s.producer()
	if err != nil {
		return err
	}
	for _, tag := range []string{"a", "b", "c"} {
		message := s.message(tag)
		message.SetTag(tag)
		message.AddProperty("size", tag)
		if _, err := s.send(producer, message); err != nil {
			return err
		}
	}
	byTag, err := s.simpleConsumer(s.topic+"_tag", rmq.NewFilterExpression("a || c"))
	if err != nil {
		return err
	}
	found, err := receive(byTag, 2)
	if err != nil {
		return err
	}
	s.facts["by_tag"] = sorted(bodies(found))
	sql := rmq.NewFilterExpressionWithType("size = 'b'", rmq.SQL92)
	bySQL, err := s.simpleConsumer(s.topic+"_sql", sql)
	if err != nil {
		return err
	}
	found, err = receive(bySQL, 1)
	s.facts["by_sql"] = sorted(bodies(found))
	return err
}

// Messages that wait are received by priority, the highest first. A received message of this
// client has no priority.
func priority(s *stage) error {
	producer, err := s.producer()
	if err != nil {
		return err
	}
	for _, priority := range []int32{1, 3, 0, 2} {
		message := s.message(fmt.Sprint(priority))
		if err := message.SetPriority(priority); err != nil {
			return err
		}
		if _, err := s.send(producer, message); err != nil {
			return err
		}
	}
	consumer, err := s.own()
	if err != nil {
		return err
	}
	found := []string{}
	for range 4 {
		some, err := once(consumer, 1)
		if err != nil {
			return err
		}
		found = append(found, bodies(some)...)
	}
	s.facts["received"] = found
	return nil
}

// The code of the status that an error carries; "error" if it carries none, "done" without one.
func codeOf(err error) string {
	if err == nil {
		return "done"
	}
	if status, ok := rmq.AsErrRpcStatus(err); ok {
		return v2.Code_name[status.Code]
	}
	return "error"
}

// The codes of what a proxy refuses, some of them by the broker's answer.
func refused(s *stage) error {
	producer, err := s.producer()
	if err != nil {
		return err
	}
	_, err = s.producerOf(s.topic + "_unknown")
	s.facts["unknown_topic"] = codeOf(err)
	wrong := s.message("x")
	wrong.SetMessageGroup("a")
	_, err = s.send(producer, wrong)
	s.facts["wrong_type"] = codeOf(err)
	if _, err := s.send(producer, s.message("one")); err != nil {
		return err
	}
	consumer, err := s.own()
	if err != nil {
		return err
	}
	found, err := receive(consumer, 1)
	if err != nil {
		return err
	}
	s.facts["acked"] = codeOf(consumer.Ack(context.Background(), found[0]))
	s.facts["acked_again"] = codeOf(consumer.Ack(context.Background(), found[0]))
	_, err = consumer.Receive(context.Background(), 1, time.Second)
	s.facts["too_short"] = codeOf(err)
	bad, err := s.simpleConsumer(s.topic+"_bad", rmq.NewFilterExpressionWithType("a = ", rmq.SQL92))
	if err != nil {
		return err
	}
	_, err = bad.Receive(context.Background(), 1, invisible)
	s.facts["bad_filter"] = codeOf(err)
	_, err = producer.Recall(context.Background(), s.topic, "AAAA")
	s.facts["bad_handle"] = codeOf(err)
	return nil
}
