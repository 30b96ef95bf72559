package main

import (
	"fmt"
	"sync"
	"time"
)

const deadline = 60 * time.Second

// Inbox has the items received so far, in order; waiting has a deadline. Goroutine-safe.
type Inbox[T any] struct {
	mutex   sync.Mutex
	items   []T
	changed chan struct{}
}

func newInbox[T any]() *Inbox[T] {
	return &Inbox[T]{changed: make(chan struct{})}
}

func (inbox *Inbox[T]) put(items ...T) {
	inbox.mutex.Lock()
	defer inbox.mutex.Unlock()
	inbox.items = append(inbox.items, items...)
	close(inbox.changed)
	inbox.changed = make(chan struct{})
}

func (inbox *Inbox[T]) all() ([]T, <-chan struct{}) {
	inbox.mutex.Lock()
	defer inbox.mutex.Unlock()
	return append([]T(nil), inbox.items...), inbox.changed
}

// await returns all items, once there are at least count of them.
func (inbox *Inbox[T]) await(count int) ([]T, error) {
	return inbox.until(func(all []T) bool { return len(all) >= count })
}

func (inbox *Inbox[T]) until(enough func([]T) bool) ([]T, error) {
	over := time.After(deadline)
	for {
		all, changed := inbox.all()
		if enough(all) {
			return all, nil
		}
		select {
		case <-changed:
		case <-over:
			return all, fmt.Errorf("only %d came: %v", len(all), all)
		}
	}
}
