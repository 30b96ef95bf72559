package trockettest

import "net/http"

// NoAnswer is in place of the code of an answer that did not come.
const NoAnswer = -1

// Replayed is a request of a recording that was sent again.
type Replayed struct {
	RequestCode int
	// RecordedCode is the response code of the recorded answer, or NoAnswer.
	RecordedCode int
	// Code is the response code of the answer now, or NoAnswer.
	Code int
}

// Record records what clients and the broker say from now on, also over a Restart. A recording that
// runs is forgotten.
func (b *Broker) Record() {
	b.t.Helper()
	b.request(http.MethodPost, "/record", nil, &struct{}{})
}

// StopRecording ends the recording and returns it: a frame a line, as an object of JSON, as `trocket
// interop record --json` writes them. Encrypted connections and those of gRPC clients are left out.
func (b *Broker) StopRecording() string {
	b.t.Helper()
	return string(b.content(http.MethodPost, "/stop-recording", nil))
}

// Replay sends the requests of a recording again, each when all that was answered before it is
// answered again. After 45 s the rest has no answer.
func (b *Broker) Replay(recording string) []Replayed {
	b.t.Helper()
	var found struct {
		Requests []struct {
			RequestCode  int  `json:"request_code"`
			RecordedCode *int `json:"recorded_code"`
			Code         *int `json:"code"`
		} `json:"requests"`
	}
	b.decode("/replay", b.content(http.MethodPost, "/replay", []byte(recording)), &found)
	replayed := make([]Replayed, 0, len(found.Requests))
	for _, each := range found.Requests {
		replayed = append(replayed,
			Replayed{each.RequestCode, codeOf(each.RecordedCode), codeOf(each.Code)})
	}
	return replayed
}

func codeOf(code *int) int {
	if code == nil {
		return NoAnswer
	}
	return *code
}
