package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"sync"
)

var printing sync.Mutex

// say prints a line whole, whatever other goroutines print.
func say(line string) {
	printing.Lock()
	defer printing.Unlock()
	fmt.Println(line)
}

func sayJSON(value any) {
	line, _ := json.Marshal(value)
	say(string(line))
}

// points synchronise scenarios with the harness: a line out, and a line in, SCENARIO POINT, that
// resumes.
var points struct {
	mutex  sync.Mutex
	passed map[string]chan struct{}
}

func passed(line string) chan struct{} {
	points.mutex.Lock()
	defer points.mutex.Unlock()
	if points.passed == nil {
		points.passed = map[string]chan struct{}{}
	}
	if points.passed[line] == nil {
		points.passed[line] = make(chan struct{})
	}
	return points.passed[line]
}

// readPoints reads stdin to its end.
func readPoints() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		close(passed(lines.Text()))
	}
}

// reach reports a scenario's point; its channel is closed when the harness resumes it.
func reach(name string, point string) <-chan struct{} {
	sayJSON(map[string]string{"at": point, "scenario": name})
	return passed(name + " " + point)
}
