package main

import (
	"context"
	"fmt"
	"math/rand"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const largerThanAllowed = 4<<20 + 1

func sendSync(stage *Stage) error {
	statuses, offsets := []string{}, []int64{}
	var ids, offsetIDs []string
	for number := 0; number < 3; number++ {
		keys := []string{fmt.Sprint("key-", number), "shared"}
		message := stage.message(fmt.Sprint("Tag", number), keys, fmt.Sprint("body-", number))
		message.WithProperty("colour", fmt.Sprint("red-", number))
		result, err := stage.send(message)
		if err != nil {
			return err
		}
		statuses, offsets = append(statuses, status(result)), append(offsets, result.QueueOffset)
		ids, offsetIDs = append(ids, result.MsgID), append(offsetIDs, result.OffsetMsgID)
	}
	got, err := stage.receive(3)
	if err != nil {
		return err
	}
	stage.facts["statuses"], stage.facts["offsets"] = statuses, offsets
	stage.facts["same_ids"] = same(ids, got, func(m *primitive.MessageExt) string { return m.MsgId })
	stage.facts["same_offset_ids"] = same(offsetIDs, got,
		func(m *primitive.MessageExt) string { return m.OffsetMsgId })
	stage.facts["received"] = each(got, func(m *primitive.MessageExt) any {
		return []any{body(m), m.GetTags(), m.GetKeys(), m.GetProperty("colour"), m.QueueOffset,
			m.ReconsumeTimes}
	})
	return nil
}

func same(expected []string, got messages, of func(*primitive.MessageExt) string) bool {
	for number, message := range got {
		if of(message) != expected[number] {
			return false
		}
	}
	return len(expected) == len(got)
}

func sendAsync(stage *Stage) error {
	made, err := stage.producer()
	if err != nil {
		return err
	}
	answers := newInbox[string]()
	for number := 0; number < 10; number++ {
		err := made.SendAsync(context.Background(),
			func(_ context.Context, result *primitive.SendResult, err error) {
				if err != nil {
					answers.put(err.Error())
				} else {
					answers.put(status(result))
				}
			}, stage.message("", nil, fmt.Sprint("body-", number)))
		if err != nil {
			return err
		}
	}
	all, err := answers.await(10)
	if err != nil {
		return err
	}
	distinct := []string{}
	for number, answer := range sorted(all) {
		if number == 0 || answer != all[number-1] {
			distinct = append(distinct, answer)
		}
	}
	stage.facts["statuses"] = distinct
	return stage.receiveSorted(10)
}

func (stage *Stage) receiveSorted(count int) error {
	got, err := stage.receive(count)
	stage.facts["received"] = sorted(bodies(got))
	return err
}

func sendOneway(stage *Stage) error {
	made, err := stage.producer()
	if err != nil {
		return err
	}
	for number := 0; number < 10; number++ {
		message := stage.message("", nil, fmt.Sprint("body-", number))
		if err := made.SendOneWay(context.Background(), message); err != nil {
			return err
		}
	}
	return stage.receiveSorted(10)
}

func sendBatch(stage *Stage) error {
	var some []*primitive.Message
	for number := 0; number < 5; number++ {
		keys := []string{fmt.Sprint("key-", number)}
		some = append(some,
			stage.message(fmt.Sprint("Tag", number), keys, fmt.Sprint("body-", number)))
	}
	result, err := stage.send(some...)
	if err != nil {
		return err
	}
	got, err := stage.receive(5)
	if err != nil {
		return err
	}
	ids := map[string]bool{}
	for _, message := range got {
		ids[message.MsgId] = true
	}
	stage.facts["status"], stage.facts["offset"] = status(result), result.QueueOffset
	stage.facts["received"] = each(got, func(m *primitive.MessageExt) any {
		return []any{body(m), m.GetTags(), strings.TrimSpace(m.GetKeys()), m.QueueOffset}
	})
	stage.facts["ids_returned"] = len(strings.FieldsFunc(result.MsgID, isComma))
	stage.facts["ids_stored"] = len(ids)
	stage.facts["offset_ids_returned"] = len(strings.FieldsFunc(result.OffsetMsgID, isComma))
	return nil
}

func isComma(letter rune) bool { return letter == ',' }

func sendBySelector(stage *Stage) error {
	made, err := stage.newProducer(stage.topic,
		producer.WithQueueSelector(producer.NewHashQueueSelector()))
	if err != nil {
		return err
	}
	for number := 0; number < 24; number++ {
		order := fmt.Sprint(number % 6)
		message := stage.message("", nil, fmt.Sprint(order, "/", number/6)).WithShardingKey(order)
		if _, err := made.SendSync(context.Background(), message); err != nil {
			return err
		}
	}
	got, err := stage.receive(24)
	if err != nil {
		return err
	}
	sort.Slice(got, func(i, j int) bool { return got[i].QueueOffset < got[j].QueueOffset })
	steps, queues := map[string][]string{}, map[string]map[int]bool{}
	for _, message := range got {
		order, step, _ := strings.Cut(body(message), "/")
		steps[order] = append(steps[order], step)
		if queues[order] == nil {
			queues[order] = map[int]bool{}
		}
		queues[order][message.Queue.QueueId] = true
	}
	counts := []int{}
	for _, some := range queues {
		counts = append(counts, len(some))
	}
	stage.facts["steps_of_each"], stage.facts["queues_of_each"] = steps, counts
	return nil
}

func sendAutoCreated(stage *Stage) error {
	result, err := stage.send(stage.message("", nil, "first"))
	if err != nil {
		return err
	}
	stage.facts["status"], stage.facts["offset"] = status(result), result.QueueOffset
	made, err := admin.NewAdmin(stage.adminOptions()...)
	if err != nil {
		return err
	}
	defer func() { _ = made.Close() }()
	queues, err := made.FetchPublishMessageQueues(context.Background(), stage.topic)
	for over := time.Now().Add(deadline); err != nil && time.Now().Before(over); {
		time.Sleep(pause)
		queues, err = made.FetchPublishMessageQueues(context.Background(), stage.topic)
	}
	if err != nil {
		return err
	}
	stage.facts["queues"] = len(queues)
	return stage.receiveSorted(1)
}

var refusal = regexp.MustCompile(`CODE: (\d+)`)

func sendTooLarge(stage *Stage) error {
	made, err := stage.newProducer(stage.topic,
		producer.WithCompressMsgBodyOverHowmuch(largerThanAllowed*2))
	if err != nil {
		return err
	}
	large := make([]byte, largerThanAllowed)
	rand.New(rand.NewSource(1)).Read(large)
	_, err = made.SendSync(context.Background(), primitive.NewMessage(stage.topic, large))
	if err == nil {
		return fmt.Errorf("it was taken")
	}
	if found := refusal.FindStringSubmatch(err.Error()); found != nil {
		stage.facts["refused_by_broker"], _ = strconv.Atoi(found[1])
	} else {
		return err
	}
	result, err := made.SendSync(context.Background(), stage.message("", nil, "next"))
	if err != nil {
		return err
	}
	stage.facts["next"] = status(result)
	return stage.receiveSorted(1)
}

func sendUnicode(stage *Stage) error {
	message := stage.message("Größe", []string{"schlüssel", "ключ"}, "日本語 ✓ 🙂 \x00")
	message.WithProperty("farbe", "grün ✓ 🙂")
	message.WithProperty("цвет", "зелёный")
	if _, err := stage.send(message); err != nil {
		return err
	}
	got, err := stage.receive(1)
	stage.facts["received"] = each(got, func(m *primitive.MessageExt) any {
		return []any{body(m), m.GetTags(), m.GetKeys(), m.GetProperty("farbe"), m.GetProperty("цвет")}
	})
	return err
}

func sendCompressed(stage *Stage) error {
	lines := []string{}
	for number := 0; number < 20_000; number++ {
		lines = append(lines, fmt.Sprint("line ", number%10))
	}
	text := strings.Join(lines, "\n")
	if _, err := stage.send(stage.message("", nil, text)); err != nil {
		return err
	}
	got, err := stage.receive(1)
	if err != nil {
		return err
	}
	stage.facts["same"] = body(got[0]) == text
	stage.facts["length"] = len(got[0].Body)
	stage.facts["stored_smaller"] = int(got[0].StoreSize) < len(text)/10
	return nil
}

func sendNamespace(stage *Stage) error {
	made, err := stage.newProducer(stage.topic, producer.WithNamespace("space"))
	if err != nil {
		return err
	}
	result, err := made.SendSync(context.Background(),
		stage.message("Tag", []string{"key"}, "inside"))
	if err != nil {
		return err
	}
	of := stage.own()
	of.instance = "space"
	of.options = []consumer.Option{consumer.WithNamespace("space")}
	inbox, err := stage.listen(of)
	if err != nil {
		return err
	}
	got, err := inbox.await(1)
	if err != nil {
		return err
	}
	stage.facts["status"], stage.facts["received"] = status(result), bodies(got)
	stage.facts["topic_without_namespace"] = got[0].Topic == stage.topic
	return nil
}
