package trockettest

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	// startTimeout is for a busy machine; the broker is usually ready within a second.
	startTimeout = 60 * time.Second
	// stopTimeout is how long a broker may take to end before it is killed.
	stopTimeout = 10 * time.Second
	// logSize is how many bytes of the broker's log are kept: its last hundred lines or so.
	logSize = 16 * 1024
)

type settings struct {
	command string
	config  []string
	args    []string
	onDisk  bool
}

// Option is a setting of the broker that Start starts.
type Option func(*settings)

// Command is the trocket program: a path, or a name that is looked up in PATH. Without it, the
// environment variable TROCKET has it; without that, it is "trocket".
func Command(name string) Option {
	return func(s *settings) { s.command = name }
}

// Config has lines of a broker.conf, such as "defaultTopicQueueNums=1".
func Config(lines ...string) Option {
	return func(s *settings) { s.config = append(s.config, lines...) }
}

// OnDisk has the data in a temporary folder, which is deleted at the end, in place of memory: a disk
// that is slow needs files.
func OnDisk() Option {
	return func(s *settings) { s.onDisk = true }
}

// Args are further arguments of `trocket up`, such as "--log-level", "info".
func Args(args ...string) Option {
	return func(s *settings) { s.args = append(s.args, args...) }
}

// ready is what the broker says when clients are served.
type ready struct {
	Namesrv string `json:"namesrv"`
	Broker  string `json:"broker"`
	Control string `json:"control"`
	PID     int    `json:"pid"`
}

// Start starts a broker as a child process, on free ports, with its data in memory.
//
// It ends with the test, and also when the process of the test ends without that, for instance
// because it was killed. When the test has failed by then, the test's log gets what the broker
// has logged. A broker that cannot be started ends the test.
func Start(t testing.TB, options ...Option) *Broker {
	t.Helper()
	chosen := settings{command: os.Getenv("TROCKET")}
	for _, option := range options {
		option(&chosen)
	}
	if chosen.command == "" {
		chosen.command = "trocket"
	}
	args := []string{"up", "--test-clock", "--json", "--exit-with-parent",
		"--namesrv-port", "0", "--broker-port", "0", "--metrics-port", "0"}
	if !chosen.onDisk {
		args = append(args, "--memory")
	}
	if len(chosen.config) > 0 {
		file := filepath.Join(t.TempDir(), "broker.conf")
		if err := os.WriteFile(file, []byte(strings.Join(chosen.config, "\n")+"\n"), 0o600); err != nil {
			t.Fatalf("trockettest: %v", err)
		}
		args = append(args, "-c", file)
	}
	server, err := launch(chosen.command, append(args, chosen.args...))
	if err != nil {
		t.Fatalf("trockettest: %v", err)
	}
	t.Cleanup(func() {
		if err := server.stop(); err != nil {
			t.Errorf("trockettest: %v", err)
		}
		if t.Failed() {
			t.Logf("trockettest: the broker logged:\n%s", server.log.text())
		}
	})
	state, err := server.wait()
	if err != nil {
		t.Fatalf("trockettest: %v", err)
	}
	control := &http.Client{Timeout: requestTimeout, Transport: &http.Transport{}}
	t.Cleanup(control.CloseIdleConnections)
	return &Broker{t: t, ready: state, control: control}
}

// process is a running `trocket up`.
type process struct {
	command *exec.Cmd
	first   chan string // the first line of its standard output
	isReady bool
	ended   chan struct{} // closed at its end
	log     *tail
}

func launch(name string, args []string) (*process, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return nil, fmt.Errorf("there is no command %q: install trocket "+
			"(pip install 'trocket[cli]'), or have the environment variable TROCKET name it: %w",
			name, err)
	}
	p := &process{
		command: exec.Command(path, args...),
		first:   make(chan string, 1),
		ended:   make(chan struct{}),
		log:     &tail{},
	}
	p.command.Stderr = p.log
	output, err := p.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.command.Start(); err != nil {
		return nil, err
	}
	go func() {
		reader := bufio.NewReader(output)
		if line, err := reader.ReadString('\n'); err == nil {
			p.first <- line
		}
		_, _ = io.Copy(io.Discard, reader) // Wait must not be called before the end of the output
		_ = p.command.Wait()
		close(p.ended)
	}()
	return p, nil
}

// wait returns when clients are served.
func (p *process) wait() (state ready, err error) {
	select {
	case line := <-p.first:
		if err := json.Unmarshal([]byte(line), &state); err != nil {
			return state, fmt.Errorf("%s printed %q, which is not JSON: %w", p.command, line, err)
		}
		if state.Control == "" {
			return state, fmt.Errorf("%s has no control port: a newer trocket is needed", p.command)
		}
		p.isReady = true
		return state, nil
	case <-p.ended:
		return state, fmt.Errorf("%s ended before it was ready (%v):\n%s",
			p.command, p.command.ProcessState, p.log.text())
	case <-time.After(startTimeout):
		return state, fmt.Errorf("%s was not ready after %v:\n%s",
			p.command, startTimeout, p.log.text())
	}
}

// stop ends the process. That it has ended before is an error, unless it never was ready.
func (p *process) stop() error {
	isAsked := false
	select {
	case <-p.ended:
	default:
		isAsked = p.command.Process.Signal(syscall.SIGTERM) == nil
		if !isAsked { // Windows has no SIGTERM
			_ = p.command.Process.Kill()
			<-p.ended
			return nil
		}
	}
	select {
	case <-p.ended:
	case <-time.After(stopTimeout):
		_ = p.command.Process.Kill()
		<-p.ended
		return errors.New("the broker did not end on SIGTERM and was killed")
	}
	if p.isReady && !(isAsked && p.command.ProcessState.Success()) {
		return fmt.Errorf("the broker ended during the test (%v)", p.command.ProcessState)
	}
	return nil
}

// tail keeps the last bytes that are written to it.
type tail struct {
	mutex sync.Mutex
	bytes []byte
}

func (t *tail) Write(some []byte) (int, error) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.bytes = append(t.bytes, some...)
	if surplus := len(t.bytes) - logSize; surplus > 0 {
		t.bytes = append([]byte(nil), t.bytes[surplus:]...)
	}
	return len(some), nil
}

func (t *tail) text() string {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return string(t.bytes)
}
