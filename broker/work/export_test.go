package work

// RunOne steps the next task on the caller's goroutine and reports whether there was one. It is for
// Tasks without workers.
func (t *Tasks[T, W]) RunOne(w *W) bool {
	t.queue.mu.Lock()
	task, lane, ok := t.queue.pop()
	t.queue.mu.Unlock()
	if ok {
		t.run(w, task, lane)
	}
	return ok
}
