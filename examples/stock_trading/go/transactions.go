package main

import (
	"context"
	"fmt"
	"sync"

	"github.com/apache/rocketmq-client-go/v2/primitive"
)

const secondsUntilAsked = 6 // the broker's transactionTimeOut

// mishap is what happens to the producer while it works on an order.
type mishap int

const (
	noMishap mishap = iota
	diesAfterHolding
	diesBeforeHolding
)

type accountOrder struct {
	account string
	amount  int
	mishap  mishap
}

var accountOrderIDs = []string{
	"enough-money", "too-little-money", "dies-after-holding", "dies-before-holding",
}

var accountOrders = map[string]accountOrder{
	"enough-money":        {"alice", 300, noMishap},
	"too-little-money":    {"bob", 1500, noMishap},
	"dies-after-holding":  {"carol", 400, diesAfterHolding},
	"dies-before-holding": {"alice", 200, diesBeforeHolding},
}

var stateNames = map[primitive.LocalTransactionState]string{
	primitive.CommitMessageState:   "COMMIT_MESSAGE",
	primitive.RollbackMessageState: "ROLLBACK_MESSAGE",
	primitive.UnknowState:          "UNKNOW",
}

// transactions: money is held if and only if its order is placed. The broker keeps the order back
// while the account is changed; what the account then says decides. Where the producer never says
// it, the broker asks.
type transactions struct {
	*market
	book    *accountBook
	missing *latch

	mutex           sync.Mutex
	answered, asked map[string]string
	placed          []string
	repeated        []string
}

func newTransactions(market *market) *transactions {
	return &transactions{
		market: market,
		book: &accountBook{
			balances: map[string]int{"alice": 1000, "bob": 1000, "carol": 1000},
			held:     map[string]bool{},
		},
		missing:  newLatch(4), // two are asked about, two placed
		answered: map[string]string{},
		asked:    map[string]string{},

		repeated: []string{},
	}
}

func (transactions *transactions) start() error {
	made, err := transactions.startTransactions("accounts", transactions)
	if err != nil {
		return err
	}
	for _, id := range accountOrderIDs {
		order := accountOrders[id]
		text := fmt.Sprintf("%s buys for %d", order.account, order.amount)
		message := transactions.message("placed", "", id, text)
		if _, err := made.SendMessageInTransaction(context.Background(), message); err != nil {
			return err
		}
	}
	say("transactions", "two are asked about after %d s", secondsUntilAsked)
	return transactions.consume("placed", "exchange", everything, transactions.place)
}

// ExecuteLocalTransaction is called when the broker has the order and shows it to no consumer yet.
func (transactions *transactions) ExecuteLocalTransaction(
	message *primitive.Message,
) primitive.LocalTransactionState {
	id := message.GetKeys()
	order := accountOrders[id]
	if order.mishap != diesBeforeHolding {
		transactions.book.hold(id, order.account, order.amount)
	}
	state := primitive.UnknowState
	if order.mishap == noMishap {
		state = transactions.state(id)
	}
	transactions.mutex.Lock()
	defer transactions.mutex.Unlock()
	transactions.answered[id] = stateNames[state]
	say("transactions", "%s: held is %t, tells %s", message.Body, transactions.book.isHeld(id),
		stateNames[state])
	return state
}

// state is what the book says of an order.
func (transactions *transactions) state(id string) primitive.LocalTransactionState {
	if transactions.book.isHeld(id) {
		return primitive.CommitMessageState
	}
	return primitive.RollbackMessageState
}

// CheckLocalTransaction is called when the broker got no answer. It may be asked of another
// process: use the book.
func (transactions *transactions) CheckLocalTransaction(
	message *primitive.MessageExt,
) primitive.LocalTransactionState {
	id := message.GetKeys()
	state := transactions.state(id)
	transactions.mutex.Lock()
	defer transactions.mutex.Unlock()
	if transactions.asked[id] == "" {
		transactions.missing.countDown()
	}
	transactions.asked[id] = stateNames[state]
	say("transactions", "%s: asked about, tells %s", id, stateNames[state])
	return state
}

// place: an order may come twice, as any message may, and must not be placed twice.
func (transactions *transactions) place(order *primitive.MessageExt) {
	transactions.mutex.Lock()
	defer transactions.mutex.Unlock()
	id := order.GetKeys()
	for _, placed := range transactions.placed {
		if placed == id {
			transactions.repeated = append(transactions.repeated, id)
			say("transactions", "%s: came again, is placed already", id)
			return
		}
	}
	transactions.placed = append(transactions.placed, id)
	say("transactions", "%s: placed", id)
	transactions.missing.countDown()
}

func (transactions *transactions) await() {
	transactions.market.await(transactions.missing)
}

func (transactions *transactions) report(results *report) {
	transactions.mutex.Lock()
	defer transactions.mutex.Unlock()
	results.mustBe("balances", map[string]int{"alice": 700, "bob": 1000, "carol": 600},
		transactions.book.balances)
	results.mustBe("transactions_answered", map[string]string{
		"enough-money": "COMMIT_MESSAGE", "too-little-money": "ROLLBACK_MESSAGE",
		"dies-after-holding": "UNKNOW", "dies-before-holding": "UNKNOW",
	}, transactions.answered)
	results.mustBe("transactions_asked", map[string]string{
		"dies-after-holding": "COMMIT_MESSAGE", "dies-before-holding": "ROLLBACK_MESSAGE",
	}, transactions.asked)
	results.mustBe("orders_placed", []string{"enough-money", "dies-after-holding"},
		transactions.placed)
	results.fact("orders_repeated", transactions.repeated)
}
