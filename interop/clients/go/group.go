package main

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

const settleTime = 50 * time.Second

func groupFromFirst(stage *Stage) error {
	return groupFrom(stage, consumer.ConsumeFromFirstOffset)
}

// groupFromLast: a queue that still has its very first message in memory is young: LAST is its
// first.
func groupFromLast(stage *Stage) error {
	return groupFrom(stage, consumer.ConsumeFromLastOffset)
}

// groupFromTime: so is a time that has not come yet.
func groupFromTime(stage *Stage) error {
	return groupFrom(stage, consumer.ConsumeFromTimestamp)
}

func groupFrom(stage *Stage, where consumer.ConsumeFromWhere) error {
	if err := stage.sendTexts("before-0", "before-1", "before-2"); err != nil {
		return err
	}
	of := stage.own()
	of.options = []consumer.Option{
		consumer.WithConsumeFromWhere(where),
		consumer.WithConsumeTimestamp("20990101000000"),
	}
	inbox, err := stage.listen(of)
	if err != nil {
		return err
	}
	if err := stage.sendTexts("after-0", "after-1"); err != nil {
		return err
	}
	got, err := inbox.await(5)
	stage.facts["received"] = bodies(got)
	return err
}

// groupGoesOn: a new consumer resumes behind what an ended one consumed.
func groupGoesOn(stage *Stage) error {
	if err := stage.sendTexts("0", "1", "2", "3", "4"); err != nil {
		return err
	}
	inbox := newInbox[*primitive.MessageExt]()
	of := stage.own()
	of.instance = stage.topic + "first"
	first, err := stage.push(of, into(inbox))
	if err != nil {
		return err
	}
	got, err := inbox.await(5)
	if err != nil {
		return err
	}
	stage.facts["first"] = bodies(got)
	if err := awaitNoted(first, stage.topic); err != nil {
		return err
	}
	if err := leave(first); err != nil {
		return err
	}
	if err := stage.sendTexts("5", "6", "7"); err != nil {
		return err
	}
	of.instance = stage.topic + "second"
	rest, err := stage.listen(of)
	if err != nil {
		return err
	}
	got, err = rest.await(3)
	stage.facts["second"] = bodies(got)
	return err
}

// awaitNoted waits until a consumer has noted what its listener returned, which a shutdown does not.
func awaitNoted(made rocketmq.PushConsumer, topic string) error {
	for over := time.Now().Add(deadline); time.Now().Before(over); time.Sleep(pause) {
		if behind, known := made.GetOffsetDiffMap()[topic]; known && behind == 0 {
			return nil
		}
	}
	return fmt.Errorf("never noted: %v", made.GetOffsetDiffMap())
}

// got is a message and its consumer.
type got struct{ who, body string }

// groupRebalance: a new consumer gets a share of the queues, which returns when it leaves.
func groupRebalance(stage *Stage) error {
	inbox := newInbox[got]()
	if _, err := stage.join("a", inbox); err != nil {
		return err
	}
	if err := stage.settle("alone", inbox, map[string]int{"a": 4}); err != nil {
		return err
	}
	second, err := stage.join("b", inbox)
	if err != nil {
		return err
	}
	if err := stage.settle("two", inbox, map[string]int{"a": 2, "b": 2}); err != nil {
		return err
	}
	if err := leave(second); err != nil {
		return err
	}
	return stage.settle("alone_again", inbox, map[string]int{"a": 4})
}

func (stage *Stage) join(who string, inbox *Inbox[got]) (rocketmq.PushConsumer, error) {
	of := stage.own()
	of.instance = stage.topic + who
	return stage.push(of, func(
		_ context.Context, some ...*primitive.MessageExt,
	) (consumer.ConsumeResult, error) {
		for _, message := range some {
			inbox.put(got{who, body(message)})
		}
		return consumer.ConsumeSuccess, nil
	})
}

// settle sends a message to each queue until each consumer has the wanted number of queues.
func (stage *Stage) settle(name string, inbox *Inbox[got], wanted map[string]int) error {
	over := time.Now().Add(settleTime)
	for turn := 0; ; turn++ {
		mark := fmt.Sprint(name, "/", turn, "/")
		for queue := 0; queue < queueCount; queue++ {
			if err := stage.sendTo(queue, fmt.Sprint(mark, queue)); err != nil {
				return err
			}
		}
		all, err := inbox.until(func(all []got) bool { return len(byBody(all, mark)) == queueCount })
		if err != nil {
			return err
		}
		queues := map[string]int{}
		for _, who := range byBody(all, mark) {
			queues[who]++
		}
		stage.facts[name] = queues
		if reflect.DeepEqual(queues, wanted) || time.Now().After(over) {
			return nil
		}
		time.Sleep(pause)
	}
}

func byBody(all []got, mark string) map[string]string {
	found := map[string]string{}
	for _, one := range all {
		if strings.HasPrefix(one.body, mark) {
			found[one.body] = one.who
		}
	}
	return found
}
