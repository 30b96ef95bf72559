package main

import (
	"encoding/json"
	"fmt"
	"reflect"
)

// report has the results of all parts: facts, and what should have been otherwise.
type report struct {
	facts    map[string]any
	failures []string
}

func newReport() *report {
	return &report{facts: map[string]any{}, failures: []string{}}
}

// say prints one line of one part at once.
func say(part, format string, values ...any) {
	fmt.Printf("%-13s %s\n", part, fmt.Sprintf(format, values...))
}

func (report *report) fact(name string, value any) {
	report.facts[name] = value
}

// mustBe is for a fact that must have a certain value.
func (report *report) mustBe(name string, expected, value any) {
	report.fact(name, value)
	if !reflect.DeepEqual(expected, value) {
		report.fail("%s must be %s and is %s", name, toJSON(expected), toJSON(value))
	}
}

func (report *report) fail(format string, values ...any) {
	report.failures = append(report.failures, fmt.Sprintf(format, values...))
}

func (report *report) json() string {
	report.fact("failures", report.failures)
	return toJSON(report.facts)
}

func toJSON(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
