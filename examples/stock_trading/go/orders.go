package main

import (
	"fmt"
	"sync"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

const ordersPerAccount = 4

var accounts = []string{"alice", "bob", "carol"}

// orders of an account all go to one queue, and a queue is consumed by one goroutine at a time: so
// they are consumed in the order in which they were sent, while other accounts go on beside.
type orders struct {
	*market
	sent    map[string][]string
	missing *latch

	mutex    sync.Mutex
	consumed map[string][]string
}

func newOrders(market *market) *orders {
	return &orders{
		market:   market,
		sent:     map[string][]string{},
		missing:  newLatch(len(accounts) * ordersPerAccount),
		consumed: map[string][]string{},
	}
}

func (orders *orders) start() error {
	for number := 1; number <= ordersPerAccount; number++ {
		for _, account := range accounts {
			id := fmt.Sprintf("%s-%d", account, number)
			order := orders.message("orders", "", id, "buy 10 TRK").WithShardingKey(account)
			order.WithProperty("account", account)
			if err := orders.send(order); err != nil {
				return err
			}
			orders.sent[account] = append(orders.sent[account], id)
		}
	}
	return orders.consume("orders", "matching-engine", everything, orders.match,
		consumer.WithConsumerOrder(true))
}

func (orders *orders) match(order *primitive.MessageExt) {
	orders.mutex.Lock()
	defer orders.mutex.Unlock()
	account := order.GetProperty("account")
	orders.consumed[account] = append(orders.consumed[account], order.GetKeys())
	say("orders", "%s from queue %d: %s", order.GetKeys(), order.Queue.QueueId, order.Body)
	orders.missing.countDown()
}

func (orders *orders) await() {
	orders.market.await(orders.missing)
}

func (orders *orders) report(results *report) {
	orders.mutex.Lock()
	defer orders.mutex.Unlock()
	results.mustBe("orders", orders.sent, orders.consumed)
}
