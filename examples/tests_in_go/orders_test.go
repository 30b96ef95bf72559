package shop

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// patience is long because a busy machine needs some; nothing waits for it.
const patience = 60 * time.Second

func resolver() primitive.NsResolver {
	return primitive.NewPassthroughResolver([]string{nameServer})
}

// unique makes a name for this test alone, because tests share the broker.
func unique(prefix string) string {
	return fmt.Sprintf("%s-%d", prefix, time.Now().UnixNano())
}

func send(t *testing.T, topic, body string) {
	t.Helper()
	sender, err := rocketmq.NewProducer(
		producer.WithNsResolver(resolver()), producer.WithGroupName("shop"))
	if err != nil {
		t.Fatal(err)
	}
	if err := sender.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sender.Shutdown() }()
	message := primitive.NewMessage(topic, []byte(body)).WithKeys([]string{"order-1"})
	if _, err := sender.SendSync(context.Background(), message); err != nil {
		t.Fatal(err)
	}
}

type handler func(*primitive.MessageExt) consumer.ConsumeResult

func consume(t *testing.T, topic string, handle handler) {
	t.Helper()
	receiver, err := rocketmq.NewPushConsumer(
		consumer.WithNsResolver(resolver()),
		consumer.WithGroupName(unique("billing")),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	if err != nil {
		t.Fatal(err)
	}
	err = receiver.Subscribe(topic, consumer.MessageSelector{},
		func(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			if each, ok := primitive.GetConcurrentlyCtx(ctx); ok {
				each.DelayLevelWhenNextConsume = 1 // after a second, not after ten
			}
			return handle(messages[0]), nil
		})
	if err != nil {
		t.Fatal(err)
	}
	if err := receiver.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = receiver.Shutdown() })
}

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

func TestAnOrderArrives(t *testing.T) {
	topic := unique("orders")
	send(t, topic, "bread")
	received := make(chan *primitive.MessageExt, 1)
	consume(t, topic, func(message *primitive.MessageExt) consumer.ConsumeResult {
		received <- message
		return consumer.ConsumeSuccess
	})
	order := arrived(t, received)
	if string(order.Body) != "bread" || order.GetKeys() != "order-1" {
		t.Fatalf("another order arrived: %s", order)
	}
}

func TestAnOrderThatFailsComesAgain(t *testing.T) {
	topic := unique("orders")
	send(t, topic, "bread")
	received := make(chan *primitive.MessageExt, 1)
	var tries atomic.Int32
	consume(t, topic, func(message *primitive.MessageExt) consumer.ConsumeResult {
		if tries.Add(1) == 1 {
			return consumer.ConsumeRetryLater
		}
		received <- message
		return consumer.ConsumeSuccess
	})
	if again := arrived(t, received); again.ReconsumeTimes < 1 {
		t.Fatalf("it was delivered %d times", again.ReconsumeTimes)
	}
}
