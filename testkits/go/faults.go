package trockettest

import (
	"fmt"
	"net/http"
	"time"
)

// Kind is what a Fault does to a request.
type Kind string

const (
	// Drop has the request processed, but its answer is not sent: was it stored or not?
	Drop Kind = "drop"
	// Swallow neither processes nor answers the request.
	Swallow Kind = "swallow"
	// Delay has the request processed and answered later, by Fault.Delay.
	Delay Kind = "delay"
	// Duplicate has the request processed once and answered twice.
	Duplicate Kind = "duplicate"
	// Answer refuses the request with Fault.AnswerCode and Fault.Remark; it is not processed.
	Answer Kind = "answer"
	// Change has the request processed, and its answer sent with Fault.AnswerCode: by default with
	// FLUSH_SLAVE_TIMEOUT, as by a master whose slaves lag.
	Change Kind = "change"
	// Disconnect closes the connection of the request.
	Disconnect Kind = "disconnect"
	// Hang has the request processed and answered when the fault is cleared, as by a server that
	// hangs; the connection stays open.
	Hang Kind = "hang"
)

// Always is the Times of a Fault that affects all requests until ClearFaults.
const Always = -1

// Fault is what happens to the next requests with a code. A call of a client that speaks gRPC counts
// as the request that does the same: 310 for a send, 200050 (POP_MESSAGE) for a receive.
type Fault struct {
	Kind Kind
	// Code of the requests, such as 310 (SEND_MESSAGE_V2) or 11 (PULL_MESSAGE); 0: any.
	Code int
	// Times is the number of requests that are affected: 0 counts as 1; or Always.
	Times int
	// AtNamesrv has it affect the name server in place of the broker.
	AtNamesrv bool
	// Delay is for the kind Delay, 0 to 10 minutes of real time.
	Delay time.Duration
	// AnswerCode and Remark are for the kinds Answer and Change: 0 is SYSTEM_BUSY for the first and
	// FLUSH_SLAVE_TIMEOUT for the second, "" a usual text.
	AnswerCode int
	Remark     string
}

func (f Fault) body() map[string]any {
	body := map[string]any{"kind": f.Kind}
	if f.Code != 0 {
		body["code"] = f.Code
	}
	if f.Times == Always {
		body["times"] = nil
	} else if f.Times != 0 {
		body["times"] = f.Times
	}
	if f.AtNamesrv {
		body["server"] = "namesrv"
	}
	if f.Kind == Delay || f.Delay != 0 {
		body["delay_ms"] = f.Delay.Milliseconds()
	}
	if f.AnswerCode != 0 {
		body["answer_code"] = f.AnswerCode
	}
	if f.Remark != "" {
		body["remark"] = f.Remark
	}
	return body
}

// Fault has the broker misbehave, from the next request on. Its result is for Hits and ClearFaults.
func (b *Broker) Fault(fault Fault) int {
	b.t.Helper()
	var made struct {
		ID int `json:"id"`
	}
	b.request(http.MethodPost, "/faults", fault.body(), &made)
	return made.ID
}

// Hits is the number of requests that a fault has affected; it may be used up, but not cleared.
func (b *Broker) Hits(id int) int {
	b.t.Helper()
	var all struct {
		Faults []struct {
			ID   int `json:"id"`
			Hits int `json:"hits"`
		} `json:"faults"`
	}
	b.request(http.MethodGet, "/faults", nil, &all)
	for _, fault := range all.Faults {
		if fault.ID == id {
			return fault.Hits
		}
	}
	b.t.Fatalf("trockettest: there is no fault %d", id)
	return 0
}

// ClearFaults ends the faults with these IDs; without one, all. The disk stays as it is.
func (b *Broker) ClearFaults(ids ...int) {
	b.t.Helper()
	if len(ids) == 0 {
		b.request(http.MethodDelete, "/faults", nil, &struct{}{})
	}
	for _, id := range ids {
		b.request(http.MethodDelete, fmt.Sprintf("/faults/%d", id), nil, &struct{}{})
	}
}

// Disk is how the broker's disk behaves. The zero value is a disk without faults.
type Disk struct {
	// Full has sends refused, as on a full disk.
	Full bool
	// FailingFsync has each fsync of the commit log fail; the store becomes read-only.
	FailingFsync bool
	// Slow is how long each fsync of the commit log takes, 0 to 60 s of real time. Only a
	// broker that was started with OnDisk can be slow.
	Slow time.Duration
}

// Disk sets all properties of the broker's disk.
func (b *Broker) Disk(disk Disk) {
	b.t.Helper()
	b.request(http.MethodPost, "/disk", map[string]any{
		"full": disk.Full, "failing_fsync": disk.FailingFsync,
		"slow_ms": disk.Slow.Milliseconds(),
	}, &struct{}{})
}
