package trockettest

import (
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestABrokerIsRestartedAndCrashesAtItsAddressesAndTime(t *testing.T) {
	broker := Start(t)
	broker.Freeze()
	broker.Advance(time.Hour)
	now := broker.Now()
	for _, end := range []func(){
		broker.Restart, func() { broker.Crash() }, func() { broker.Crash(false) },
	} {
		c := dial(t, broker)
		end()
		if _, err := c.read(patience); !errors.Is(err, io.EOF) {
			t.Errorf("%v is not the end of the connection", err)
		}
		c = dial(t, broker)
		c.ask(runtimeInfo)
		if got := c.mustRead(); got.Code != 0 {
			t.Errorf("%v was answered", got)
		}
		if !broker.Now().Equal(now) {
			t.Errorf("%v instead of %v", broker.Now(), now)
		}
	}
}

func TestARecordingIsReplayed(t *testing.T) {
	broker := Start(t)
	c := dial(t, broker)
	broker.Record()
	c.ask(runtimeInfo)
	c.mustRead()
	broker.Fault(Fault{Kind: Answer, Code: runtimeInfo})
	c.ask(runtimeInfo)
	c.mustRead()
	recording := broker.StopRecording()
	if lines := strings.Count(recording, "\n"); lines != 4 {
		t.Errorf("%d lines:\n%s", lines, recording)
	}
	broker.Fault(Fault{Kind: Disconnect, Code: runtimeInfo})
	replayed := broker.Replay(recording)
	if want := []Replayed{{runtimeInfo, 0, NoAnswer}, {runtimeInfo, systemBusy, 0}}; !reflect.DeepEqual(
		replayed, want) {
		t.Errorf("%v instead of %v", replayed, want)
	}
	r := played(t, func(r *recorder) { (&Broker{r, broker.ready, broker.control}).StopRecording() })
	mustHave(t, r.failed, "/stop-recording: 409: nothing is recorded")
	r = played(t, func(r *recorder) { (&Broker{r, broker.ready, broker.control}).Replay("hello") })
	mustHave(t, r.failed, "/replay: 400: line 1 is not of a recording")
}
