package flow

// Window bounds the bytes that a receiver has not confirmed. Beyond half of the window it is asked
// to confirm what it has; beyond the window nothing is sent. Each confirmation doubles the window,
// up to LastWindow. The zero value is without flow control.
type Window struct {
	limit   int    // the window; 0: no flow control
	sent    int    // bytes that are not confirmed
	covered int    // of sent: bytes before the request under way
	token   uint64 // of the request under way; 0: none
}

// Open begins flow control.
func (w *Window) Open() { *w = Window{limit: FirstWindow} }

// Limit returns the window in bytes; 0: no flow control.
func (w *Window) Limit() int { return w.limit }

// Token returns the token of the request under way; 0: none.
func (w *Window) Token() uint64 { return w.token }

// Full reports whether nothing may be sent. A request is under way or due then.
func (w *Window) Full() bool { return w.limit > 0 && w.sent > w.limit }

// Room returns how many bytes may be sent before it is full. It is 0 or less if it is full, or
// without flow control.
func (w *Window) Room() int { return w.limit - w.sent }

// Add counts bytes that are sent.
func (w *Window) Add(bytes int) {
	if w.limit > 0 {
		w.sent += bytes
	}
}

// Due reports whether the receiver is to be asked: after Add, and after Confirm, which may leave
// more than half of the window.
func (w *Window) Due() bool { return w.limit > 0 && w.token == 0 && w.sent > w.limit/2 }

// Ask notes a request with a token that is not 0.
func (w *Window) Ask(token uint64) { w.token, w.covered = token, w.sent }

// Confirm takes an answer, and reports whether it is that to the request under way.
func (w *Window) Confirm(token uint64) bool {
	if token == 0 || token != w.token {
		return false
	}
	w.sent -= w.covered
	w.limit = min(2*w.limit, LastWindow)
	w.token, w.covered = 0, 0
	return true
}
