// Package trockettest gives a test a RocketMQ broker whose time and faults the test commands.
//
//	func TestTheBillIsSentAfterTwoHours(t *testing.T) {
//		broker := trockettest.Start(t)
//		// … send a message with a delay of two hours to broker.NamesrvAddr() …
//		broker.Advance(2 * time.Hour)
//		// … it is there …
//	}
//
// A client's clock is its own: it is not advanced, and must not be compared with the broker's. All
// methods may be called from the goroutine of the test only, since they end the test when a request
// to the broker fails; NamesrvAddr, BrokerAddr and ControlURL may be called from any.
package trockettest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"
)

// requestTimeout is the time limit of a request to the control port. An Advance over years takes
// some seconds on a busy machine.
const requestTimeout = 60 * time.Second

// Broker is a name server and a broker, for one test and its subtests.
type Broker struct {
	t       testing.TB
	ready   ready
	control *http.Client
}

// NamesrvAddr is the HOST:PORT of the name server, for clients of the remoting protocol.
func (b *Broker) NamesrvAddr() string { return b.ready.Namesrv }

// BrokerAddr is the HOST:PORT of the broker, which is the endpoint of clients that speak gRPC.
func (b *Broker) BrokerAddr() string { return b.ready.Broker }

// ControlURL is the address of the broker's control port, for requests that have no method here.
func (b *Broker) ControlURL() string { return b.ready.Control }

type clock struct {
	NowMs  int64 `json:"now_ms"`
	Frozen bool  `json:"frozen"`
}

// Now is the broker's time.
func (b *Broker) Now() time.Time {
	b.t.Helper()
	return time.UnixMilli(b.clock(http.MethodGet, "/time", nil).NowMs)
}

// Advance puts the broker's clock forward, by 0 to 10 years; parts of a millisecond are rounded up.
//
// When it returns, delayed messages that became due are in their topics, retries and expired pops
// can be received again, and producers were asked about their open transactions.
func (b *Broker) Advance(by time.Duration) {
	b.t.Helper()
	ms := by.Milliseconds()
	if by > time.Duration(ms)*time.Millisecond {
		ms++
	}
	b.clock(http.MethodPost, "/advance", map[string]int64{"ms": ms})
}

// Set puts the broker's clock forward to a time, with the effects of Advance. A time before Now
// ends the test.
func (b *Broker) Set(now time.Time) {
	b.t.Helper()
	b.clock(http.MethodPost, "/set", map[string]int64{"now_ms": now.UnixMilli()})
}

// Freeze stops the broker's clock: then only Advance and Set move it.
func (b *Broker) Freeze() {
	b.t.Helper()
	b.clock(http.MethodPost, "/freeze", nil)
}

// Unfreeze has the broker's clock go on from where it is.
func (b *Broker) Unfreeze() {
	b.t.Helper()
	b.clock(http.MethodPost, "/unfreeze", nil)
}

func (b *Broker) clock(method, path string, body any) clock {
	b.t.Helper()
	var now clock
	b.request(method, path, body, &now)
	return now
}

// request ends the test if the control port refuses it.
func (b *Broker) request(method, path string, body, answer any) {
	b.t.Helper()
	var sent []byte
	if body != nil {
		var err error
		if sent, err = json.Marshal(body); err != nil {
			b.t.Fatalf("trockettest: %s %s%s: %v", method, b.ready.Control, path, err)
		}
	}
	b.decode(path, b.content(method, path, sent), answer)
}

// content is the answer of the control port as it came; a refusal ends the test.
func (b *Broker) content(method, path string, body []byte) []byte {
	b.t.Helper()
	content, err := b.ask(method, path, body)
	if err != nil {
		b.t.Fatalf("trockettest: %s %s%s: %v", method, b.ready.Control, path, err)
	}
	return content
}

// decode ends the test if an answer is not of its form.
func (b *Broker) decode(path string, content []byte, answer any) {
	b.t.Helper()
	if err := json.Unmarshal(content, answer); err != nil {
		b.t.Fatalf("trockettest: the answer of %s%s: %v", b.ready.Control, path, err)
	}
}

func (b *Broker) ask(method, path string, body []byte) ([]byte, error) {
	request, err := http.NewRequest(method, b.ready.Control+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	response, err := b.control.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		var refused struct {
			Error string `json:"error"`
		}
		if json.Unmarshal(content, &refused) != nil || refused.Error == "" {
			refused.Error = string(content)
		}
		return nil, fmt.Errorf("%d: %s", response.StatusCode, refused.Error)
	}
	return content, nil
}
