package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const requestTimeout = 30 * time.Second

// The broker knows a client by its heartbeat, which comes a second after its start: until then it
// refuses replies to it.
const (
	replyTries = 50
	replyPause = 200 * time.Millisecond
)

func requestReply(stage *Stage) error {
	replier, err := stage.newProducer(stage.topic + "_replier")
	if err != nil {
		return err
	}
	if _, err := stage.push(stage.own(), replying(replier)); err != nil {
		return err
	}
	made, err := stage.newProducer(stage.topic)
	if err != nil {
		return err
	}
	request := stage.message("Tag", []string{"key"}, "sync")
	reply, err := made.Request(context.Background(), requestTimeout, request)
	if err != nil {
		return err
	}
	stage.facts["sync"] = string(reply.Body)
	replies := newInbox[string]()
	err = made.RequestAsync(context.Background(), requestTimeout,
		func(_ context.Context, reply *primitive.Message, err error) {
			if err != nil {
				replies.put(err.Error())
			} else {
				replies.put(string(reply.Body))
			}
		}, stage.message("Tag", []string{"key"}, "async"))
	if err != nil {
		return err
	}
	all, err := replies.await(1)
	if err == nil {
		stage.facts["async"] = all[0]
	}
	return err
}

// replying echoes requests; CreateReplyMessage does not take the body that it is given.
func replying(replier rocketmq.Producer) listener {
	return func(_ context.Context, some ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, message := range some {
			reply, err := consumer.CreateReplyMessage(message, nil)
			if err != nil {
				return consumer.ConsumeRetryLater, err
			}
			reply.Body = []byte("echo " + body(message))
			if err := sendReply(replier, reply); err != nil {
				return consumer.ConsumeRetryLater, err
			}
		}
		return consumer.ConsumeSuccess, nil
	}
}

func sendReply(replier rocketmq.Producer, reply *primitive.Message) (err error) {
	for try := 0; try < replyTries; try++ {
		if _, err = replier.SendSync(context.Background(), reply); err == nil {
			return nil
		}
		time.Sleep(replyPause)
	}
	return err
}

func requestUnanswered(stage *Stage) error {
	made, err := stage.newProducer(stage.topic)
	if err != nil {
		return err
	}
	_, err = made.Request(context.Background(), 3*time.Second,
		stage.message("Tag", []string{"key"}, "no reply"))
	stage.facts["timed_out"] = err != nil && strings.Contains(err.Error(), "timeout")
	return nil
}

// administer: a topic is created, listed and deleted.
func administer(stage *Stage) error {
	result, err := stage.send(stage.message("", nil, "has the broker's address"))
	if err != nil {
		return err
	}
	made, err := admin.NewAdmin(stage.adminOptions()...)
	if err != nil {
		return err
	}
	defer func() { _ = made.Close() }()
	id, err := primitive.UnmarshalMsgID([]byte(result.OffsetMsgID))
	if err != nil {
		return err
	}
	ctx, topic := context.Background(), stage.topic+"_made"
	address := fmt.Sprint(id.Addr, ":", id.Port)
	err = made.CreateTopic(ctx, admin.WithTopicCreate(topic), admin.WithBrokerAddrCreate(address),
		admin.WithReadQueueNums(3), admin.WithWriteQueueNums(3))
	if err != nil {
		return err
	}
	queues, err := made.FetchPublishMessageQueues(ctx, topic)
	if err != nil {
		return err
	}
	stage.facts["queues"] = len(queues)
	if stage.facts["listed"], err = listed(made, topic); err != nil {
		return err
	}
	err = made.DeleteTopic(ctx, admin.WithTopicDelete(topic), admin.WithBrokerAddrDelete(address),
		admin.WithNameSrvAddr([]string{stage.namesrv}))
	if err != nil {
		return err
	}
	stage.facts["listed_when_deleted"], err = listed(made, topic)
	groups, groupsErr := made.GetAllSubscriptionGroup(ctx, address, requestTimeout)
	if groupsErr == nil {
		_, stage.facts["has_tools_group"] = groups.SubscriptionGroupTable["TOOLS_CONSUMER"]
	}
	return err
}

func listed(made admin.Admin, topic string) (bool, error) {
	list, err := made.FetchAllTopicList(context.Background())
	if err != nil {
		return false, err
	}
	for _, one := range list.TopicList {
		if one == topic {
			return true, nil
		}
	}
	return false, nil
}

// trace: the kinds of the trace records of one message.
func trace(stage *Stage) error {
	config := &primitive.TraceConfig{
		GroupName: stage.topic, Access: primitive.Local, Resolver: stage.resolver(),
		Credentials: account}
	made, err := stage.newProducer(stage.topic, producer.WithTrace(config))
	if err != nil {
		return err
	}
	of := stage.own()
	of.instance = stage.topic + "_traced"
	of.options = []consumer.Option{consumer.WithTrace(config)}
	traced, err := stage.listen(of)
	if err != nil {
		return err
	}
	reader := stage.own()
	reader.topic, reader.group = "RMQ_SYS_TRACE_TOPIC", stage.topic+"_reader"
	records, err := stage.listen(reader)
	if err != nil {
		return err
	}
	result, err := made.SendSync(context.Background(),
		stage.message("Tag", []string{"key"}, "traced"))
	if err != nil {
		return err
	}
	if _, err := traced.await(1); err != nil {
		return err
	}
	all, err := records.until(func(all messages) bool { return len(kinds(all, result.MsgID)) >= 3 })
	stage.facts["kinds"] = kinds(all, result.MsgID)
	found := false
	for _, record := range all {
		found = found || strings.Contains(record.GetKeys(), result.MsgID)
	}
	stage.facts["found_by_id"] = found
	return err
}

// kinds: a record begins with its kind; fields end with \1, records with \2.
func kinds(all messages, id string) []string {
	found := map[string]bool{}
	for _, message := range all {
		for _, record := range strings.Split(body(message), "\x02") {
			if kind, _, ok := strings.Cut(record, "\x01"); ok && strings.Contains(record, id) {
				found[kind] = true
			}
		}
	}
	list := []string{}
	for kind := range found {
		list = append(list, kind)
	}
	return sorted(list)
}
