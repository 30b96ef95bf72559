package shop

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// nameServer is the address of the broker's name server, for all tests of the package.
var nameServer string

// TestMain starts a name server and a broker, in memory and on free ports, and runs the tests.
// The servers end with this process, also when it is killed.
func TestMain(m *testing.M) {
	status, err := withBroker(m.Run)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(status)
}

func withBroker(run func() int) (int, error) {
	name := os.Getenv("TROCKET")
	if name == "" {
		name = "trocket"
	}
	command := exec.Command(name, "up", "--memory", "--json", "--exit-with-parent",
		"--namesrv-port", "0", "--broker-port", "0", "--metrics-port", "0")
	command.Stderr = os.Stderr
	output, err := command.StdoutPipe()
	if err != nil {
		return 1, err
	}
	if err := command.Start(); err != nil {
		return 1, err
	}
	defer func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		_ = command.Wait()
	}()
	// One line of JSON when clients are served.
	line, err := bufio.NewReader(output).ReadBytes('\n')
	if err != nil {
		return 1, fmt.Errorf("trocket did not start: %w", err)
	}
	var ready struct {
		Namesrv string `json:"namesrv"`
	}
	if err := json.Unmarshal(line, &ready); err != nil {
		return 1, err
	}
	nameServer = ready.Namesrv
	return run(), nil
}
