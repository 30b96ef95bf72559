package trockettest

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

const patience = 60 * time.Second

// recorder is a test that keeps what it is failed with.
type recorder struct {
	testing.TB
	failed string
	logged string
	ends   []func()
}

func (r *recorder) Helper()          {}
func (r *recorder) Cleanup(f func()) { r.ends = append(r.ends, f) }
func (r *recorder) Failed() bool     { return r.failed != "" }

func (r *recorder) Logf(format string, args ...any) { r.logged += fmt.Sprintf(format, args...) }

func (r *recorder) Errorf(format string, args ...any) { r.failed += fmt.Sprintf(format, args...) }

func (r *recorder) Fatalf(format string, args ...any) {
	r.failed += fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// played is what a test is failed with, "" if it passes.
func played(t *testing.T, test func(*recorder)) *recorder {
	t.Helper()
	r := &recorder{TB: t}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer func() {
			for number := len(r.ends) - 1; number >= 0; number-- {
				r.ends[number]()
			}
		}()
		test(r)
	}()
	<-ended
	return r
}

func mustHave(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in %q", part, text)
		}
	}
}

// script is a program with a fixed behaviour, in place of trocket.
func script(t *testing.T, lines string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "trocket")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+lines+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAMissingCommandIsNamed(t *testing.T) {
	r := played(t, func(r *recorder) { Start(r, Command("/no/trocket")) })
	mustHave(t, r.failed, "/no/trocket", "pip install", "TROCKET")
}

func TestABrokerThatDoesNotStartFailsWithItsLog(t *testing.T) {
	r := played(t, func(r *recorder) { Start(r, Config("defaultTopicQueueNum=1")) })
	mustHave(t, r.failed, "ended before it was ready", "defaultTopicQueueNum")
}

func TestAProgramWithoutAControlPortIsRefused(t *testing.T) {
	old := script(t, `echo '{"namesrv": "127.0.0.1:9"}'; exec sleep 60`)
	r := played(t, func(r *recorder) { Start(r, Command(old)) })
	mustHave(t, r.failed, "no control port")
	other := script(t, `echo hello; exec sleep 60`)
	r = played(t, func(r *recorder) { Start(r, Command(other)) })
	mustHave(t, r.failed, `"hello\n"`, "not JSON")
}

func TestATestThatFailsHasTheLogOfTheBroker(t *testing.T) {
	r := played(t, func(r *recorder) {
		broker := Start(r)
		broker.Set(broker.Now().Add(-time.Hour))
		r.Errorf("not reached")
	})
	mustHave(t, r.failed, "POST", "/set: 409: ")
	mustHave(t, r.logged, "the broker logged:", "commands the time")
	if strings.Contains(r.failed, "not reached") {
		t.Error("the test went on")
	}
}

func TestABrokerThatEndsBeforeItsTestFailsIt(t *testing.T) {
	r := played(t, func(r *recorder) {
		broker := Start(r)
		process, err := os.FindProcess(broker.ready.PID)
		if err != nil {
			t.Fatal(err)
		}
		_ = process.Kill()
		awaitClosed(t, broker.NamesrvAddr())
	})
	mustHave(t, r.failed, "ended during the test")
}

func TestTimeIsCommanded(t *testing.T) {
	broker := Start(t, Config("defaultTopicQueueNums=1"), Args("--log-level", "info"))
	broker.Freeze()
	start := broker.Now()
	broker.Advance(2*time.Hour + time.Nanosecond)
	if by := broker.Now().Sub(start); by != 2*time.Hour+time.Millisecond {
		t.Errorf("the clock was advanced by %v", by)
	}
	date := start.Add(48 * time.Hour).Truncate(time.Hour)
	broker.Set(date)
	if now := broker.Now(); !now.Equal(date) {
		t.Errorf("%v instead of %v", now, date)
	}
	broker.Unfreeze()
	for over := time.Now().Add(patience); !broker.Now().After(date); {
		if time.Now().After(over) {
			t.Fatal("the clock does not go on")
		}
	}
}

// The test that is killed runs in another process, which is this program once more.
func TestABrokerEndsWithAKilledTest(t *testing.T) {
	const variable = "TROCKETTEST_IS_KILLED"
	if os.Getenv(variable) != "" {
		broker := Start(t)
		_, _ = os.Stdout.WriteString("at " + broker.NamesrvAddr() + "\n")
		process, _ := os.FindProcess(os.Getpid())
		_ = process.Kill()
		select {}
	}
	killed := exec.Command(os.Args[0], "-test.run=^TestABrokerEndsWithAKilledTest$")
	killed.Env = append(os.Environ(), variable+"=yes")
	output, err := killed.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := killed.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if err := killed.Wait(); err == nil {
		t.Fatal("it was not killed")
	}
	awaitClosed(t, strings.TrimPrefix(strings.TrimSpace(line), "at "))
}

// awaitClosed waits until an address takes no connections.
func awaitClosed(t *testing.T, address string) {
	t.Helper()
	for over := time.Now().Add(patience); time.Now().Before(over); {
		connection, err := net.Dial("tcp", address)
		if err != nil {
			return
		}
		_ = connection.Close()
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("%s still takes connections", address)
}
