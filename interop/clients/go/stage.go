package main

import (
	"context"
	"fmt"
	"sort"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const pause = 100 * time.Millisecond

// quietTime is longer than this client takes, after its start, to send its second heartbeat.
const quietTime = 2 * time.Second

type facts map[string]any

type messages = []*primitive.MessageExt

// Stage is the context of a scenario: its topic, which is also its group's name, and its facts.
type Stage struct {
	namesrv string
	topic   string
	facts   facts
	ends    []func()
}

var shared struct {
	once     sync.Once
	producer rocketmq.Producer
	err      error
}

func (stage *Stage) end() {
	for number := len(stage.ends) - 1; number >= 0; number-- {
		stage.ends[number]()
	}
}

func (stage *Stage) resolver() primitive.NsResolver {
	return primitive.NewPassthroughResolver([]string{stage.namesrv})
}

// queueSelector takes the queue that a message names, and else one after the other.
type queueSelector struct {
	others producer.QueueSelector
}

func (selector queueSelector) Select(
	message *primitive.Message, queues []*primitive.MessageQueue, last string,
) *primitive.MessageQueue {
	for _, queue := range queues {
		if message.Queue != nil && queue.QueueId == message.Queue.QueueId {
			return queue
		}
	}
	return selector.others.Select(message, queues, last)
}

func (stage *Stage) producerOptions(name string, more ...producer.Option) []producer.Option {
	options := append(stage.unsignedOptions(name), signedBy(account)...)
	return append(options, more...)
}

func (stage *Stage) unsignedOptions(name string) []producer.Option {
	return append([]producer.Option{
		producer.WithNsResolver(stage.resolver()),
		producer.WithGroupName(name),
		producer.WithInstanceName(name),
		producer.WithQueueSelector(queueSelector{producer.NewRoundRobinQueueSelector()}),
	}, producerTLS()...)
}

func (stage *Stage) adminOptions() []admin.AdminOption {
	return append([]admin.AdminOption{admin.WithResolver(stage.resolver())}, adminTLS()...)
}

// newProducer starts a producer of the scenario's own.
func (stage *Stage) newProducer(name string, more ...producer.Option) (rocketmq.Producer, error) {
	made, err := rocketmq.NewProducer(stage.producerOptions(name, more...)...)
	if err == nil {
		err = made.Start()
	}
	if err == nil {
		stage.ends = append(stage.ends, func() { _ = made.Shutdown() })
	}
	return made, err
}

// producer is that of all scenarios that need no other.
func (stage *Stage) producer() (rocketmq.Producer, error) {
	shared.once.Do(func() {
		forAll := &Stage{namesrv: stage.namesrv}
		shared.producer, shared.err = forAll.newProducer("scenarios")
	})
	return shared.producer, shared.err
}

func (stage *Stage) message(tag string, keys []string, body string) *primitive.Message {
	message := primitive.NewMessage(stage.topic, []byte(body))
	if tag != "" {
		message.WithTag(tag)
	}
	if keys != nil {
		message.WithKeys(keys)
	}
	return message
}

func (stage *Stage) send(message ...*primitive.Message) (*primitive.SendResult, error) {
	made, err := stage.producer()
	if err != nil {
		return nil, err
	}
	return made.SendSync(context.Background(), message...)
}

func (stage *Stage) sendTexts(bodies ...string) error {
	for _, body := range bodies {
		if _, err := stage.send(stage.message("", nil, body)); err != nil {
			return err
		}
	}
	return nil
}

// sendTo sends a text to the queue of this number.
func (stage *Stage) sendTo(queue int, body string) error {
	message := stage.message("", nil, body)
	message.Queue = &primitive.MessageQueue{QueueId: queue}
	_, err := stage.send(message)
	return err
}

func (stage *Stage) sendNumbers(first int, end int, queueCount int) error {
	for number := first; number < end; number++ {
		if err := stage.sendTo(number%queueCount, fmt.Sprint(number)); err != nil {
			return err
		}
	}
	return nil
}

func (stage *Stage) consumerOptions(
	group string, instance string, more ...consumer.Option,
) []consumer.Option {
	options := append([]consumer.Option{
		consumer.WithNsResolver(stage.resolver()),
		consumer.WithGroupName(group),
		consumer.WithInstance(instance),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithConsumeGoroutineNums(1),
	}, consumerSignedBy(account)...)
	return append(append(options, consumerTLS()...), more...)
}

// subscription is what a push consumer listens to, and how.
type subscription struct {
	topic    string
	group    string
	instance string
	selector consumer.MessageSelector
	options  []consumer.Option
}

type listener = func(context.Context, ...*primitive.MessageExt) (consumer.ConsumeResult, error)

// push starts a push consumer that begins with the first message.
func (stage *Stage) push(of subscription, each listener) (rocketmq.PushConsumer, error) {
	options := stage.consumerOptions(of.group, of.instance, of.options...)
	made, err := rocketmq.NewPushConsumer(options...)
	if err == nil {
		err = made.Subscribe(of.topic, of.selector, each)
	}
	if err == nil {
		err = made.Start()
	}
	if err == nil {
		stage.ends = append(stage.ends, func() { _ = made.Shutdown() })
	}
	return made, err
}

// leave ends a consumer with a separate instance, and so a separate connection: this client does not
// unregister, it only hangs up. Apache's broker may read a heartbeat from a connection that has just
// closed, and then the one who left stays a member for 120 s: so none may be under way.
func leave(made interface{ Shutdown() error }) error {
	time.Sleep(quietTime)
	return made.Shutdown()
}

func (stage *Stage) own() subscription {
	return subscription{topic: stage.topic, group: stage.topic, instance: "consumers"}
}

// listen starts a push consumer that takes all it gets into an inbox.
func (stage *Stage) listen(of subscription) (*Inbox[*primitive.MessageExt], error) {
	inbox := newInbox[*primitive.MessageExt]()
	_, err := stage.push(of, into(inbox))
	return inbox, err
}

func into(inbox *Inbox[*primitive.MessageExt]) listener {
	return func(_ context.Context, some ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		inbox.put(some...)
		return consumer.ConsumeSuccess, nil
	}
}

func (stage *Stage) receive(count int) (messages, error) {
	inbox, err := stage.listen(stage.own())
	if err != nil {
		return nil, err
	}
	return inbox.await(count)
}

func body(message *primitive.MessageExt) string { return string(message.Body) }

func bodies(some messages) []string {
	texts := []string{}
	for _, message := range some {
		texts = append(texts, body(message))
	}
	return texts
}

func sorted(texts []string) []string {
	sort.Strings(texts)
	return texts
}

func status(result *primitive.SendResult) string {
	if result.Status == primitive.SendOK {
		return "SEND_OK"
	}
	return fmt.Sprint(result.Status)
}

// each gives a list of what `of` says of each message.
func each(some messages, of func(*primitive.MessageExt) any) []any {
	list := []any{}
	for _, message := range some {
		list = append(list, of(message))
	}
	return list
}
