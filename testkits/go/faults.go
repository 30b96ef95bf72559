package trockettest

import (
	"fmt"
	"net/http"
	"time"
)

// Kind is what a Fault does to a request.
type Kind string

const (
	// Drop has the request processed, but its answer is never sent.
	Drop Kind = "drop"
	// Delay sends the answer later, by Fault.Delay of real time.
	Delay Kind = "delay"
	// Duplicate sends the answer twice.
	Duplicate Kind = "duplicate"
	// Answer refuses the request with Fault.AnswerCode and Fault.Remark; it is not processed.
	Answer Kind = "answer"
	// Disconnect closes the connection of the request.
	Disconnect Kind = "disconnect"
	// Hang neither processes nor answers the request.
	Hang Kind = "hang"
)

// Fault is what happens to the next requests with a code.
type Fault struct {
	Kind Kind
	// Code of the requests, such as 310 (SEND_MESSAGE_V2) or 11 (PULL_MESSAGE); 0: any.
	Code int
	// Times is the number of requests that are affected; 0 counts as 1.
	Times int
	// Delay is for the kind Delay, in real time.
	Delay time.Duration
	// AnswerCode and Remark are for the kind Answer.
	AnswerCode int
	Remark     string
}

// FaultState is a Fault that was given to the broker.
type FaultState struct {
	ID        int  `json:"id"`
	Kind      Kind `json:"kind"`
	Code      int  `json:"code"`
	TimesLeft int  `json:"times_left"`
	// Hits is the number of requests that it has affected.
	Hits int `json:"hits"`
}

type faultBody struct {
	Kind       Kind   `json:"kind"`
	Code       int    `json:"code,omitempty"`
	Times      int    `json:"times,omitempty"`
	DelayMs    int64  `json:"delay_ms,omitempty"`
	AnswerCode int    `json:"answer_code,omitempty"`
	Remark     string `json:"remark,omitempty"`
}

// Fault has the broker misbehave, from the next request on. Its result is the fault's ID.
func (b *Broker) Fault(fault Fault) int {
	b.t.Helper()
	var made FaultState
	b.request(http.MethodPost, "/faults", faultBody{
		Kind: fault.Kind, Code: fault.Code, Times: fault.Times, DelayMs: fault.Delay.Milliseconds(),
		AnswerCode: fault.AnswerCode, Remark: fault.Remark,
	}, &made)
	return made.ID
}

// Faults are the broker's faults, also those that are used up.
func (b *Broker) Faults() []FaultState {
	b.t.Helper()
	var all struct {
		Faults []FaultState `json:"faults"`
	}
	b.request(http.MethodGet, "/faults", nil, &all)
	return all.Faults
}

// ClearFaults ends the faults with these IDs; without one, all.
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
	// FailingFsync has every fsync fail.
	FailingFsync bool
	// Slow is what each write takes longer, 0 to 60 s of real time.
	Slow time.Duration
}

// Disk sets all three properties of the broker's disk.
func (b *Broker) Disk(disk Disk) {
	b.t.Helper()
	b.request(http.MethodPost, "/disk", map[string]any{
		"full": disk.Full, "failing_fsync": disk.FailingFsync,
		"slow_ms": disk.Slow.Milliseconds(),
	}, &struct{}{})
}
