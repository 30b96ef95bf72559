package shop

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
	rmq "github.com/apache/rocketmq-clients/golang/v5"
	"trocket.testkits/trockettest"
)

// patience is long because a busy machine needs some; nothing waits for it.
const patience = 60 * time.Second

const (
	topic = "orders"
	group = "billing"
)

// TestMain keeps the clients' logs out of the tests' output and of the home folder.
func TestMain(m *testing.M) {
	rlog.SetLogLevel("fatal")
	_ = os.Setenv(rmq.CLIENT_LOG_ROOT, filepath.Join(os.TempDir(), "tests-in-go"))
	rmq.ResetLogger()
	rmq.EnableSsl = false
	os.Exit(m.Run())
}

// shop has the clients of one test.
type shop struct {
	t        *testing.T
	broker   *trockettest.Broker
	instance string
}

var shops atomic.Int32

// open starts a broker, and returns what makes clients for it.
func open(t *testing.T, options ...trockettest.Option) *shop {
	t.Helper()
	broker := trockettest.Start(t, options...)
	// Clients with one instance name share connections, so those of another broker have another.
	return &shop{t, broker, fmt.Sprintf("shop-%d", shops.Add(1))}
}

func (s *shop) resolver() primitive.NsResolver {
	return primitive.NewPassthroughResolver([]string{s.broker.NamesrvAddr()})
}

func (s *shop) producerOptions() []producer.Option {
	return []producer.Option{producer.WithNsResolver(s.resolver()),
		producer.WithInstanceName(s.instance), producer.WithGroupName("shop")}
}

func (s *shop) send(message *primitive.Message) {
	s.t.Helper()
	sender, err := rocketmq.NewProducer(s.producerOptions()...)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := sender.Start(); err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = sender.Shutdown() }()
	if _, err := sender.SendSync(context.Background(), message); err != nil {
		s.t.Fatal(err)
	}
}

// createTopic makes a topic with one queue.
func (s *shop) createTopic(name string) {
	s.t.Helper()
	made, err := admin.NewAdmin(admin.WithResolver(s.resolver()))
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = made.Close() }()
	if err := made.CreateTopic(context.Background(), admin.WithTopicCreate(name),
		admin.WithBrokerAddrCreate(s.broker.BrokerAddr()),
		admin.WithReadQueueNums(1), admin.WithWriteQueueNums(1)); err != nil {
		s.t.Fatal(err)
	}
}

type handler func(*primitive.MessageExt) consumer.ConsumeResult

// consume calls a handler with each message of a topic, until the test ends.
func (s *shop) consume(topic, group string, handle handler) {
	s.t.Helper()
	receiver, err := rocketmq.NewPushConsumer(
		consumer.WithNsResolver(s.resolver()),
		consumer.WithInstance(s.instance),
		consumer.WithGroupName(group),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	if err != nil {
		s.t.Fatal(err)
	}
	err = receiver.Subscribe(topic, consumer.MessageSelector{},
		func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			return handle(messages[0]), nil
		})
	if err != nil {
		s.t.Fatal(err)
	}
	if err := receiver.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = receiver.Shutdown() })
}

// receive consumes a topic, and returns a channel with its messages.
func (s *shop) receive(topic, group string) <-chan *primitive.MessageExt {
	s.t.Helper()
	received := make(chan *primitive.MessageExt, 100)
	s.consume(topic, group, func(message *primitive.MessageExt) consumer.ConsumeResult {
		received <- message
		return consumer.ConsumeSuccess
	})
	return received
}

// arrived is the next message, within the patience.
func arrived(t *testing.T, received <-chan *primitive.MessageExt) *primitive.MessageExt {
	t.Helper()
	select {
	case message := <-received:
		return message
	case <-time.After(patience):
		t.Fatal("no message arrived")
		return nil
	}
}

// advanceUntil puts the broker's clock forward by a step, again and again, until a message arrives.
//
// What a client does after the test has seen something, such as sending a failed message back, may
// come to the broker after one step of the clock, and then waits for the next.
func advanceUntil(
	s *shop, step time.Duration, received <-chan *primitive.MessageExt,
) *primitive.MessageExt {
	s.t.Helper()
	for over := time.Now().Add(patience); time.Now().Before(over); {
		s.broker.Advance(step)
		select {
		case message := <-received:
			return message
		case <-time.After(50 * time.Millisecond):
		}
	}
	s.t.Fatal("no message arrived")
	return nil
}

// waitForTopic waits until the name server knows a topic.
func (s *shop) waitForTopic(name string) {
	s.t.Helper()
	made, err := admin.NewAdmin(admin.WithResolver(s.resolver()))
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = made.Close() }()
	for over := time.Now().Add(patience); time.Now().Before(over); {
		if queues, err := made.FetchPublishMessageQueues(context.Background(), name); err == nil &&
			len(queues) > 0 {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	s.t.Fatalf("there is no topic %s", name)
}
