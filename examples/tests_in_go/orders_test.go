package shop

import (
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

func bread() *primitive.Message {
	return primitive.NewMessage(topic, []byte("bread")).WithKeys([]string{"order-1"})
}

func TestAnOrderArrives(t *testing.T) {
	s := open(t)
	s.send(bread())
	order := arrived(t, s.receive(topic, group))
	if string(order.Body) != "bread" || order.GetKeys() != "order-1" {
		t.Fatalf("another order arrived: %s", order)
	}
}

func TestAnOrderThatFailsComesAgain(t *testing.T) {
	s := open(t)
	s.send(bread())
	s.createTopic("%RETRY%" + group)
	tries := make(chan *primitive.MessageExt, 10)
	s.consume(topic, group, func(message *primitive.MessageExt) consumer.ConsumeResult {
		tries <- message
		if message.ReconsumeTimes == 0 {
			return consumer.ConsumeRetryLater
		}
		return consumer.ConsumeSuccess
	})
	arrived(t, tries)
	if again := advanceUntil(s, 10*time.Second, tries); again.ReconsumeTimes != 1 {
		t.Fatalf("it was delivered again %d times", again.ReconsumeTimes)
	}
}
