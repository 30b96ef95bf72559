package trockettest

import "net/http"

// Restart ends the broker's servers cleanly, and returns when they serve again with the same
// messages, addresses, faults and time. Clients lose their connections, and make new ones by
// themselves.
func (b *Broker) Restart() {
	b.t.Helper()
	b.clock(http.MethodPost, "/restart", nil)
}

// Crash does the same as Restart without a clean end. Without an argument, a broker in memory finds
// what a power failure leaves, and loses what was not synced; one that was started with OnDisk finds
// what kill -9 leaves, which is all that was written. Crash(false) is a kill -9 of both; Crash(true)
// ends the test of a broker that was started with OnDisk.
func (b *Broker) Crash(powerLoss ...bool) {
	b.t.Helper()
	body := map[string]bool{}
	for _, isLost := range powerLoss {
		body["power_loss"] = isLost
	}
	b.clock(http.MethodPost, "/crash", body)
}
