package session

import "time"

// DepartWithin sets how long a drained connection waits for its client to close. Call it before
// there are clients.
func (h *Hub) DepartWithin(d time.Duration) { h.depart = d }
