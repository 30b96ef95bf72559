package shop

import (
	"context"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	rmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

// limit of the real time of a test here; each takes about a second, but a machine may be busy.
const limit = 30 * time.Second

// timed logs the real time that the rest of a test takes, and fails it if that is too long.
func timed(t *testing.T) {
	start := time.Now()
	t.Cleanup(func() {
		took := time.Since(start)
		t.Logf("%.2f s of real time", took.Seconds())
		if took > limit {
			t.Errorf("it took more than %v", limit)
		}
	})
}

func TestABillComesAfterTwoHours(t *testing.T) {
	s := open(t)
	timed(t)
	s.send(bread().WithDelayTimeLevel(18)) // two hours
	received := s.receive(topic, group)
	s.broker.Advance(2*time.Hour - time.Minute)
	select {
	case early := <-received:
		t.Fatalf("it came a minute early: %s", early)
	case <-time.After(200 * time.Millisecond):
	}
	s.broker.Advance(time.Minute)
	arrived(t, received)
}

func TestAnOrderThatAlwaysFailsIsADeadLetterAfterSixteenRetries(t *testing.T) {
	s := open(t)
	timed(t)
	s.send(bread())
	// The client asks for the route of its group's retry topic at its start and then after 20 s,
	// so a group's first retry waits for that, unless the topic is there before.
	s.createTopic("%RETRY%" + group)
	tries := make(chan *primitive.MessageExt, 100)
	s.consume(topic, group, func(message *primitive.MessageExt) consumer.ConsumeResult {
		tries <- message
		return consumer.ConsumeRetryLater
	})
	arrived(t, tries)
	for retry := int32(1); retry <= 16; retry++ {
		// Ten seconds before the first retry, two hours before the last.
		if again := advanceUntil(s, 2*time.Hour, tries); again.ReconsumeTimes != retry {
			t.Fatalf("retry %d instead of %d", again.ReconsumeTimes, retry)
		}
	}
	dead := "%DLQ%" + group
	s.waitForTopic(dead)
	if letter := arrived(t, s.receive(dead, "undertaker")); string(letter.Body) != "bread" {
		t.Fatalf("another dead letter: %s", letter)
	}
	if len(tries) > 0 {
		t.Fatal("a dead letter was tried again")
	}
}

// forgetful leaves its transaction open, and commits it when the broker asks.
type forgetful struct {
	asked chan *primitive.MessageExt
}

func (f forgetful) ExecuteLocalTransaction(*primitive.Message) primitive.LocalTransactionState {
	return primitive.UnknowState
}

func (f forgetful) CheckLocalTransaction(
	message *primitive.MessageExt,
) primitive.LocalTransactionState {
	f.asked <- message
	return primitive.CommitMessageState
}

func TestAnOpenTransactionIsAskedAbout(t *testing.T) {
	s := open(t)
	timed(t)
	s.createTopic(topic)
	listener := forgetful{make(chan *primitive.MessageExt, 100)}
	sender, err := rocketmq.NewTransactionProducer(listener, s.producerOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	if err := sender.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sender.Shutdown() })
	if _, err := sender.SendMessageInTransaction(context.Background(), bread()); err != nil {
		t.Fatal(err)
	}
	// The start of a consumer sends a heartbeat for the producer of the same instance, too; alone
	// it sends one after a second, and a broker asks the producers that it knows.
	received := s.receive(topic, group)
	advanceUntil(s, time.Minute, listener.asked)
	arrived(t, received)
}

func TestAPoppedOrderComesAgainWhenItsInvisibleTimeIsOver(t *testing.T) {
	s := open(t)
	timed(t)
	s.createTopic(topic)
	s.send(bread())
	receiver, err := rmq.NewSimpleConsumer(
		&rmq.Config{Endpoint: s.broker.BrokerAddr(), ConsumerGroup: group,
			Credentials: &credentials.SessionCredentials{}},
		rmq.WithSimpleAwaitDuration(5*time.Second),
		rmq.WithSimpleSubscriptionExpressions(
			map[string]*rmq.FilterExpression{topic: rmq.SUB_ALL}))
	if err != nil {
		t.Fatal(err)
	}
	if err := receiver.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = receiver.GracefulStop() })
	for attempt := int32(1); attempt <= 2; attempt++ {
		messages, err := receiver.Receive(context.Background(), 1, 30*time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if got := messages[0].GetDeliveryAttempt(); got != attempt {
			t.Fatalf("attempt %d instead of %d", got, attempt)
		}
		// It is not acknowledged. The second is for RocketMQ's timers, which round up to the next.
		s.broker.Advance(30*time.Minute + time.Second)
	}
}
