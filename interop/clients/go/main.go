// Plays scenarios of messaging features, all at the same time, as users of the official client.
//
// Arguments: the name server's HOST:PORT, the prefix of topics and groups, and the
// scenarios' names. Prints for each {"scenario": NAME, "facts": {...}}, or "error" with an
// error text, and finally the line "end". interop/scenarios/ has the expected facts.
//
// A name with colons, NAME:SEND:CONSUME, runs through a fault of the broker:
// {"at": POINT, "scenario": NAME} reports its progress, and a line NAME POINT resumes it.
//
// With the first argument "numbers" it plays a client of a chaos run instead: see numbers.go.
package main

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const (
	timeout        = 110 * time.Second
	throughTimeout = 600 * time.Second
)

var scenarios = map[string]func(*Stage) error{
	"send_sync":          sendSync,
	"send_async":         sendAsync,
	"send_oneway":        sendOneway,
	"send_batch":         sendBatch,
	"send_by_selector":   sendBySelector,
	"send_auto_created":  sendAutoCreated,
	"send_too_large":     sendTooLarge,
	"send_unicode":       sendUnicode,
	"send_compressed":    sendCompressed,
	"send_namespace":     sendNamespace,
	"push_concurrent":    pushConcurrent,
	"push_orderly":       pushOrderly,
	"push_broadcasting":  pushBroadcasting,
	"push_tags":          pushTags,
	"push_sql":           pushSQL,
	"push_two_topics":    pushTwoTopics,
	"group_from_first":   groupFromFirst,
	"group_from_last":    groupFromLast,
	"group_from_time":    groupFromTime,
	"group_goes_on":      groupGoesOn,
	"group_rebalance":    groupRebalance,
	"pull_queue":         pullQueue,
	"pull_subscribed":    pullSubscribed,
	"later_retry":        laterRetry,
	"later_orderly":      laterOrderly,
	"later_level":        laterLevel,
	"later_timer":        laterTimer,
	"transaction":        transaction,
	"request_reply":      requestReply,
	"request_unanswered": requestUnanswered,
	"trace":              trace,
	"admin":              administer,
	"refused":            refused,
}

type outcome struct {
	Scenario string `json:"scenario"`
	Facts    facts  `json:"facts"`
	Error    string `json:"error,omitempty"`
	Ms       int64  `json:"ms"`
}

func main() {
	rlog.SetLogLevel("error")
	// The client panics where a send's answer never comes (its sendAsync calls back with the error
	// and goes on), as when a producer is shut down as soon as its request is replied to: the reply
	// may come before the answer.
	onPanic(func(cause interface{}) {
		fmt.Fprintln(os.Stderr, "a callback of the client panicked:", cause)
	})
	if os.Args[1] == "numbers" {
		if err := playNumbers(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		say("done")
		return
	}
	go readPoints()
	limit := timeout
	var all sync.WaitGroup
	for _, argument := range os.Args[3:] {
		words := strings.Split(argument, ":")
		if len(words) > 1 {
			limit = throughTimeout
		}
		all.Add(1)
		go func() {
			defer all.Done()
			sayJSON(play(words))
		}()
	}
	ended := make(chan struct{})
	go func() {
		all.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(limit):
	}
	say("end")
}

func play(words []string) outcome {
	start := time.Now()
	name := words[0]
	stage := &Stage{namesrv: os.Args[1], topic: os.Args[2] + name, facts: facts{}}
	result := outcome{Scenario: name, Facts: stage.facts}
	defer stage.end()
	var err error
	if len(words) > 1 {
		err = playThrough(stage, words)
	} else {
		err = scenarios[name](stage)
	}
	if err != nil {
		result.Error = err.Error()
	}
	result.Ms = time.Since(start).Milliseconds()
	return result
}
