package main

import (
	"fmt"
	"sort"
	"strconv"
	"sync"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

var (
	byTag = consumer.MessageSelector{Type: consumer.TAG, Expression: "TRK || ZEN"}
	bySQL = consumer.MessageSelector{
		Type: consumer.SQL92,
		Expression: "(symbol = 'TRK' AND price > 100) OR" +
			" (symbol = 'APX' AND price BETWEEN 48 AND 49)",
	}
)

type quote struct {
	symbol string
	price  int
}

func (quote quote) hasTag() bool {
	return quote.symbol == "TRK" || quote.symbol == "ZEN"
}

func (quote quote) matches() bool {
	return quote.symbol == "TRK" && quote.price > 100 ||
		quote.symbol == "APX" && 48 <= quote.price && quote.price <= 49
}

var allQuotes = []quote{
	{"TRK", 98}, {"APX", 51}, {"TRK", 101}, {"ZEN", 7}, {"APX", 49}, {"TRK", 104},
	{"ZEN", 8}, {"APX", 47}, {"TRK", 99}, {"ZEN", 101}, {"APX", 48}, {"TRK", 103},
}

// quotes carry their symbol as tag, and symbol and price as properties. Consumers take what they
// follow: one by tags, one by an SQL expression. The broker filters, so the rest never travels.
type quotes struct {
	*market
	byTag, bySQL *follower
}

func newQuotes(market *market) *quotes {
	return &quotes{
		market: market,
		byTag:  newFollower("by tag", quote.hasTag),
		bySQL:  newFollower("by SQL", quote.matches),
	}
}

func (quotes *quotes) start() error {
	var batch []*primitive.Message
	for _, each := range allQuotes {
		text := fmt.Sprintf("%s at %d", each.symbol, each.price)
		message := quotes.message("quotes", each.symbol, "", text)
		message.WithProperty("symbol", each.symbol)
		message.WithProperty("price", strconv.Itoa(each.price))
		batch = append(batch, message)
	}
	if err := quotes.send(batch...); err != nil { // one request, into one queue
		return err
	}
	if err := quotes.consume("quotes", "tag-follower", byTag, quotes.byTag.follow); err != nil {
		return err
	}
	return quotes.consume("quotes", "sql-follower", bySQL, quotes.bySQL.follow)
}

func (quotes *quotes) await() {
	quotes.market.await(quotes.byTag.missing)
	quotes.market.await(quotes.bySQL.missing)
}

func (quotes *quotes) report(results *report) {
	quotes.byTag.report("quotes_by_tag", results)
	quotes.bySQL.report("quotes_by_sql", results)
}

// follower consumes some of the quotes.
type follower struct {
	how     string
	wanted  []quote
	missing *latch

	mutex sync.Mutex
	came  map[int64]quote // by queue offset, as many goroutines of a consumer work at a time
}

func newFollower(how string, wants func(quote) bool) *follower {
	var wanted []quote
	for _, each := range allQuotes {
		if wants(each) {
			wanted = append(wanted, each)
		}
	}
	return &follower{
		how: how, wanted: wanted, missing: newLatch(len(wanted)), came: map[int64]quote{},
	}
}

func (follower *follower) follow(message *primitive.MessageExt) {
	follower.mutex.Lock()
	defer follower.mutex.Unlock()
	price, _ := strconv.Atoi(message.GetProperty("price"))
	follower.came[message.QueueOffset] = quote{message.GetTags(), price}
	say("quotes", "%s: %s", follower.how, message.Body)
	follower.missing.countDown()
}

func (follower *follower) report(fact string, results *report) {
	follower.mutex.Lock()
	defer follower.mutex.Unlock()
	var offsets []int64
	for offset := range follower.came {
		offsets = append(offsets, offset)
	}
	sort.Slice(offsets, func(one, other int) bool { return offsets[one] < offsets[other] })
	var came []quote
	for _, offset := range offsets {
		came = append(came, follower.came[offset])
	}
	results.mustBe(fact, bySymbol(follower.wanted), bySymbol(came))
}

func bySymbol(some []quote) map[string][]int {
	prices := map[string][]int{}
	for _, each := range some {
		prices[each.symbol] = append(prices[each.symbol], each.price)
	}
	return prices
}
