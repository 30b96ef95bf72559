package main

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const sendTimeout = 10 * time.Second

// market has the clients of all parts, and the topics and groups of this run, which no other run
// shares.
type market struct {
	namesrv   []string
	run       string
	end       time.Time // set when everything is sent
	producer  rocketmq.Producer
	shutdowns []func() error
}

func newMarket(namesrv, run string) (*market, error) {
	market := &market{namesrv: []string{namesrv}, run: run}
	made, err := rocketmq.NewProducer(market.producerOptions("producers")...)
	if err != nil {
		return nil, err
	}
	market.producer = made
	market.shutdowns = append(market.shutdowns, made.Shutdown)
	return market, made.Start()
}

// name is that of a topic or a group in this run.
func (market *market) name(of string) string {
	return "stock-" + of + "-" + market.run
}

func (market *market) producerOptions(group string) []producer.Option {
	return []producer.Option{
		producer.WithNameServer(market.namesrv),
		producer.WithGroupName(market.name(group)),
		// Producers of one instance name are one client, and that answers the broker's questions
		// about transactions for the group of its first producer alone.
		producer.WithInstanceName(market.name(group)),
		producer.WithSendMsgTimeout(sendTimeout),
		// Messages with a sharding key go to the queue of its hash, others to any.
		producer.WithQueueSelector(producer.NewHashQueueSelector()),
	}
}

func (market *market) startTransactions(
	group string, listener primitive.TransactionListener,
) (rocketmq.TransactionProducer, error) {
	made, err := rocketmq.NewTransactionProducer(listener, market.producerOptions(group)...)
	if err != nil {
		return nil, err
	}
	market.shutdowns = append(market.shutdowns, made.Shutdown)
	return made, made.Start()
}

func (market *market) message(topic, tag, key, body string) *primitive.Message {
	message := primitive.NewMessage(market.name(topic), []byte(body))
	if tag != "" {
		message.WithTag(tag)
	}
	if key != "" {
		message.WithKeys([]string{key})
	}
	return message
}

func (market *market) send(messages ...*primitive.Message) error {
	_, err := market.producer.SendSync(context.Background(), messages...)
	return err
}

var everything = consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}

// consume starts a consumer that gives each message to one function. The topic must be there.
func (market *market) consume(
	topic, group string,
	selector consumer.MessageSelector,
	each func(*primitive.MessageExt),
	more ...consumer.Option,
) error {
	options := append([]consumer.Option{
		consumer.WithNameServer(market.namesrv),
		consumer.WithGroupName(market.name(group)),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	}, more...)
	made, err := rocketmq.NewPushConsumer(options...)
	if err != nil {
		return err
	}
	err = made.Subscribe(market.name(topic), selector, func(
		_ context.Context, messages ...*primitive.MessageExt,
	) (consumer.ConsumeResult, error) {
		for _, message := range messages {
			each(message)
		}
		return consumer.ConsumeSuccess, nil
	})
	if err != nil {
		return err
	}
	market.shutdowns = append(market.shutdowns, made.Shutdown)
	return made.Start()
}

// await returns when the latch is open, or the run's time is over.
func (market *market) await(latch *latch) {
	select {
	case <-latch.open:
	case <-time.After(time.Until(market.end)):
	}
}

func (market *market) close() {
	for _, shutdown := range market.shutdowns {
		_ = shutdown()
	}
}

// latch opens when it has been counted down that often.
type latch struct {
	missing atomic.Int32
	open    chan struct{}
}

func newLatch(count int) *latch {
	made := &latch{open: make(chan struct{})}
	made.missing.Store(int32(count))
	return made
}

func (latch *latch) countDown() {
	if latch.missing.Add(-1) == 0 {
		close(latch.open)
	}
}
