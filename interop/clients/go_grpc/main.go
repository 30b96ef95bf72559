// Plays scenarios as users of RocketMQ's gRPC client for Go, all at the same time.
//
// Arguments: the HOST:PORT of a proxy or a broker, the prefix of topics and groups, and the
// scenarios' names. Prints as the programs of the other clients do;
// interop/scenarios/grpc_table.py has the expected facts. The client uses TLS if INTEROP_TLS is
// "true", and then trusts any certificate.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
)

const timeout = 150 * time.Second

var scenarios = map[string]func(*stage) error{
	"grpc_simple":          simple,
	"grpc_simple_in_pages": simpleInPages,
	"grpc_push":            push,
	"grpc_push_retry":      pushRetry,
	"grpc_push_dead":       pushDead,
	"grpc_fifo":            fifo,
	"grpc_forward":         forward,
	"grpc_delay":           delay,
	"grpc_recall":          recall,
	"grpc_transaction":     transaction,
	"grpc_priority":        priority,
	"grpc_filters":         filters,
	"grpc_refused":         refused,
}

type facts map[string]any

type outcome struct {
	Scenario string `json:"scenario"`
	Facts    facts  `json:"facts"`
	Error    string `json:"error,omitempty"`
	Ms       int64  `json:"ms"`
}

var printing sync.Mutex

func say(line string) {
	printing.Lock()
	defer printing.Unlock()
	fmt.Println(line)
}

func main() {
	rmq.EnableSsl = os.Getenv("INTEROP_TLS") == "true"
	rmq.ResetLogger()
	var all sync.WaitGroup
	for _, name := range os.Args[3:] {
		all.Add(1)
		go func() {
			defer all.Done()
			line, err := json.Marshal(play(name))
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				return
			}
			say(string(line))
		}()
	}
	ended := make(chan struct{})
	go func() {
		all.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(timeout):
	}
	say("end")
}

func play(name string) outcome {
	start := time.Now()
	one := &stage{server: os.Args[1], topic: os.Args[2] + name, facts: facts{}}
	result := outcome{Scenario: name, Facts: one.facts}
	if err := scenarios[name](one); err != nil {
		result.Error = err.Error()
	}
	if err := one.end(); err != nil && result.Error == "" {
		result.Error = "at the end: " + err.Error()
	}
	result.Ms = time.Since(start).Milliseconds()
	return result
}
