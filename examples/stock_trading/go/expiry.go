package main

import (
	"sort"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
)

const (
	filledInTime = "limit-2"
	delayLevel   = 2 // of "1s 5s 10s 30s 1m …", counted from 1
	delay        = 5 * time.Second
)

var limitOrders = []string{"limit-1", "limit-2", "limit-3"}

// expiry: with each order goes a delayed message. When it comes, an order that is still open is
// cancelled; of one that is filled by then nothing more is to be done.
type expiry struct {
	*market
	missing *latch

	mutex           sync.Mutex
	open            map[string]bool
	sent            map[string]time.Time
	lateMs          map[string]int64
	expired, filled []string
}

func newExpiry(market *market) *expiry {
	return &expiry{
		market:  market,
		missing: newLatch(len(limitOrders)),
		open:    map[string]bool{},
		sent:    map[string]time.Time{},
		lateMs:  map[string]int64{},
	}
}

func (expiry *expiry) start() error {
	for _, order := range limitOrders {
		if err := expiry.place(order); err != nil {
			return err
		}
	}
	expiry.fill(filledInTime)
	return expiry.consume("expiry", "expiry-clerk", everything, expiry.expire)
}

func (expiry *expiry) place(order string) error {
	expiry.mutex.Lock()
	defer expiry.mutex.Unlock()
	expiry.open[order] = true
	expiry.sent[order] = time.Now()
	say("expiry", "%s: open, for %s", order, delay)
	check := expiry.message("expiry", "", order, "still open?").WithDelayTimeLevel(delayLevel)
	return expiry.send(check)
}

func (expiry *expiry) fill(order string) {
	expiry.mutex.Lock()
	defer expiry.mutex.Unlock()
	delete(expiry.open, order)
	say("expiry", "%s: filled", order)
}

func (expiry *expiry) expire(check *primitive.MessageExt) {
	expiry.mutex.Lock()
	defer expiry.mutex.Unlock()
	order := check.GetKeys()
	late := (time.Since(expiry.sent[order]) - delay).Milliseconds()
	expiry.lateMs[order] = late
	if expiry.open[order] {
		delete(expiry.open, order)
		expiry.expired = append(expiry.expired, order)
		say("expiry", "%s: not filled, cancelled %d ms late", order, late)
	} else {
		expiry.filled = append(expiry.filled, order)
		say("expiry", "%s: was filled, nothing to do, %d ms late", order, late)
	}
	expiry.missing.countDown()
}

func (expiry *expiry) await() {
	expiry.market.await(expiry.missing)
}

func (expiry *expiry) report(results *report) {
	expiry.mutex.Lock()
	defer expiry.mutex.Unlock()
	sort.Strings(expiry.expired)
	results.mustBe("orders_expired", []string{"limit-1", "limit-3"}, expiry.expired)
	results.mustBe("orders_filled", []string{filledInTime}, expiry.filled)
	results.fact("expiry_late_ms", expiry.lateMs)
	for order, late := range expiry.lateMs {
		if late < 0 {
			results.fail("%s was cancelled %d ms early", order, -late)
		}
	}
}
