package trockettest

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

const (
	runtimeInfo = 28 // GET_BROKER_RUNTIME_INFO
	systemBusy  = 2
	shortWait   = 300 * time.Millisecond
)

// connection speaks as much of the remoting protocol as these tests need.
type connection struct {
	t *testing.T
	net.Conn
}

func dial(t *testing.T, broker *Broker) *connection {
	t.Helper()
	dialed, err := net.Dial("tcp", broker.BrokerAddr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dialed.Close() })
	return &connection{t, dialed}
}

// ask sends a request.
func (c *connection) ask(code int) {
	c.t.Helper()
	header, _ := json.Marshal(map[string]any{"code": code, "opaque": 7, "language": "GO"})
	frame := binary.BigEndian.AppendUint32(nil, uint32(4+len(header)))
	frame = append(binary.BigEndian.AppendUint32(frame, uint32(len(header))), header...)
	if _, err := c.Write(frame); err != nil {
		c.t.Fatal(err)
	}
}

type answer struct {
	Code   int    `json:"code"`
	Remark string `json:"remark"`
}

// read reads an answer within a time.
func (c *connection) read(wait time.Duration) (got answer, err error) {
	_ = c.SetReadDeadline(time.Now().Add(wait))
	var sizes [8]byte
	if _, err := io.ReadFull(c, sizes[:]); err != nil {
		return got, err
	}
	content := make([]byte, binary.BigEndian.Uint32(sizes[:4])-4)
	if _, err := io.ReadFull(c, content); err != nil {
		return got, err
	}
	// One byte of the second size is the kind of the header: JSON.
	header := content[:binary.BigEndian.Uint32(sizes[4:])&0xffffff]
	return got, json.Unmarshal(header, &got)
}

// mustRead is an answer that comes.
func (c *connection) mustRead() answer {
	c.t.Helper()
	got, err := c.read(patience)
	if err != nil {
		c.t.Fatal(err)
	}
	return got
}

// mustBeSilent fails the test if an answer comes.
func (c *connection) mustBeSilent() {
	c.t.Helper()
	if got, err := c.read(shortWait); !errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Fatalf("%v, %v came", got, err)
	}
}

func TestFaultsAffectRequestsOfTheirCode(t *testing.T) {
	broker := Start(t)
	c := dial(t, broker)

	refused := broker.Fault(Fault{Kind: Answer, Code: runtimeInfo, Times: 2, Remark: "not now"})
	for range [2]int{} {
		c.ask(runtimeInfo)
		if got := c.mustRead(); got != (answer{systemBusy, "not now"}) {
			t.Errorf("%v was answered", got)
		}
	}
	c.ask(runtimeInfo)
	if got := c.mustRead(); got.Code != 0 || broker.Hits(refused) != 2 {
		t.Errorf("%v was answered after %d hits", got, broker.Hits(refused))
	}

	broker.Fault(Fault{Kind: Duplicate})
	c.ask(runtimeInfo)
	c.mustRead()
	c.mustRead()

	start := time.Now()
	broker.Fault(Fault{Kind: Delay, Delay: shortWait})
	c.ask(runtimeInfo)
	c.mustRead()
	if took := time.Since(start); took < shortWait {
		t.Errorf("the answer came after %v", took)
	}

	broker.Fault(Fault{Kind: Disconnect})
	c.ask(runtimeInfo)
	if _, err := c.read(patience); !errors.Is(err, io.EOF) {
		t.Errorf("%v is not the end of the connection", err)
	}
}

func TestFaultsEndWhenTheyAreCleared(t *testing.T) {
	broker := Start(t)
	for _, kind := range []Kind{Drop, Swallow} {
		c := dial(t, broker)
		broker.Fault(Fault{Kind: kind, Times: Always})
		for range [2]int{} {
			c.ask(runtimeInfo)
			c.mustBeSilent()
		}
		broker.ClearFaults()
		c.ask(runtimeInfo)
		c.mustRead()
	}
	c := dial(t, broker)
	hung := broker.Fault(Fault{Kind: Hang, Times: Always})
	other := broker.Fault(Fault{Kind: Answer, Code: 1, AtNamesrv: true, AnswerCode: 5})
	c.ask(runtimeInfo)
	c.mustBeSilent()
	broker.ClearFaults(hung)
	c.mustRead()
	if hits := broker.Hits(other); hits != 0 {
		t.Errorf("%d hits", hits)
	}
	r := played(t, func(r *recorder) { (&Broker{r, broker.ready, broker.control}).Hits(hung) })
	mustHave(t, r.failed, "there is no fault")
	r = played(t, func(r *recorder) {
		(&Broker{r, broker.ready, broker.control}).Fault(Fault{Kind: "dorp"})
	})
	mustHave(t, r.failed, "/faults: 400: ")
}

// diskState is the answer of the control port.
type diskState struct {
	Full   bool `json:"full"`
	Fails  bool `json:"failing_fsync"`
	SlowMs int  `json:"slow_ms"`
}

func TestADiskIsFullAndHasRoomAgain(t *testing.T) {
	broker := Start(t, OnDisk())
	for _, wanted := range []Disk{
		{Full: true}, {FailingFsync: true}, {Slow: 20 * time.Millisecond}, {},
	} {
		broker.Disk(wanted)
		var got diskState
		broker.request("GET", "/disk", nil, &got)
		if got != (diskState{wanted.Full, wanted.FailingFsync, int(wanted.Slow.Milliseconds())}) {
			t.Errorf("%+v is %+v", wanted, got)
		}
	}
}
