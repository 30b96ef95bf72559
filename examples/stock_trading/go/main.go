// Stock trading: plays all parts and says whether what must hold did.
//
// Exit status: 0 if it did, 1 if not, 2 for wrong arguments.
package main

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/apache/rocketmq-client-go/v2/rlog"
)

// part is one practice of the example.
type part interface {
	// start sends everything, and starts what consumes it.
	start() error
	// await returns when all that is expected came, or the run's time is over.
	await()
	// report says what came in the end, and what of it is wrong.
	report(*report)
}

func main() {
	// The client logs a transaction that is not committed as an error.
	rlog.SetLogLevel("fatal")
	namesrv := flag.String("namesrv", "127.0.0.1:9876", "the name server's `HOST:PORT`")
	run := flag.String("run", "go-"+strconv.FormatInt(time.Now().UnixMilli(), 36),
		"part of the `NAME` of each topic and group")
	timeout := flag.Int("timeout", 20, "`SECONDS` after which what has not come counts as lost")
	asJSON := flag.Bool("json", false, "print the results as JSON at the end")
	flag.Parse()
	if flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}

	say("begin", "run %s at %s", *run, *namesrv)
	results := newReport()
	if err := play(*namesrv, *run, time.Duration(*timeout)*time.Second, results); err != nil {
		results.fail("%v", err)
	}
	for _, text := range results.failures {
		say("WRONG", "%s", text)
	}
	if len(results.failures) == 0 {
		say("done", "everything is as it must be")
	}
	if *asJSON {
		fmt.Println(results.json())
	}
	if len(results.failures) > 0 {
		os.Exit(1)
	}
}

func play(namesrv, run string, timeout time.Duration, results *report) error {
	shared, err := newMarket(namesrv, run)
	if err != nil {
		return err
	}
	defer shared.close()
	parts := []part{
		newOrders(shared), newQuotes(shared), newTransactions(shared), newExpiry(shared),
	}
	for _, each := range parts {
		if err := each.start(); err != nil {
			return err
		}
	}
	shared.end = time.Now().Add(timeout)
	for _, each := range parts {
		each.await()
	}
	// Only now: what should not have come had all the time until here to come.
	for _, each := range parts {
		each.report(results)
	}
	return nil
}
