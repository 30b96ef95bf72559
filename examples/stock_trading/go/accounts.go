package main

import "sync"

// accountBook knows what an account has, and for which orders money is held. Stands for a database.
type accountBook struct {
	mutex    sync.Mutex
	balances map[string]int
	held     map[string]bool
}

// hold takes the money for an order off the account; false, and nothing is done, without enough.
func (book *accountBook) hold(order, account string, amount int) bool {
	book.mutex.Lock()
	defer book.mutex.Unlock()
	if book.balances[account] < amount {
		return false
	}
	book.balances[account] -= amount
	book.held[order] = true
	return true
}

func (book *accountBook) isHeld(order string) bool {
	book.mutex.Lock()
	defer book.mutex.Unlock()
	return book.held[order]
}
