package bench

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"sync/atomic"
)

// logWriter is one publisher: it writes on one goroutine and takes acks on another.
type logWriter struct {
	run     *logRun
	number  int
	conn    *wire
	inbox   string
	free    chan struct{} // room under way
	sent    []atomic.Int64
	done    atomic.Bool  // nothing more is written
	asked   atomic.Int64 // messages written
	acked   int64        // and acknowledged; the reading goroutine's, as all that follows
	counted int64
	latency *recorder
	at      int64
	refusal error
}

// write is one publisher's part. It returns how many records were acknowledged within the time.
func (r *logRun) write(ctx context.Context, number int) (counted int64, err error) {
	w := &logWriter{run: r, number: number, inbox: fmt.Sprintf("_INBOX.%016x.w%d", r.id, number), free: make(chan struct{}, r.plan.window), sent: make([]atomic.Int64, r.plan.window), latency: newRecorder()}
	if w.conn, err = dialWire(ctx, r.target.address(number), w.inbox); err != nil {
		return 0, err
	}
	defer w.conn.socket.Close()
	interrupted := context.AfterFunc(ctx, func() { _ = w.conn.socket.Close() })
	defer interrupted()
	for range r.plan.window {
		w.free <- struct{}{}
	}
	failed := make(chan error, 1)
	go func() {
		err := w.conn.read(w, 256<<10, r.limits.Drain, w.over)
		_ = w.conn.socket.Close() // so that who writes learns of it, too
		close(w.free)
		failed <- err
	}()
	writing := w.publish()
	w.done.Store(true)
	// One more answer ends the reading, if all acks were there already.
	_ = w.conn.out.write([]byte("PING\r\n"))
	reading := <-failed
	r.written[number] = uint64(w.acked) * uint64(r.plan.batch)
	r.mu.Lock()
	r.latency.merge(w.latency)
	r.mu.Unlock()
	switch {
	case reading == errDone:
		return w.counted, writing
	case w.refusal != nil:
		return w.counted, w.refusal
	case ctx.Err() != nil:
		return w.counted, context.Cause(ctx)
	}
	return w.counted, fmt.Errorf("after %d of %d acks: %w", w.acked, w.asked.Load(), reading)
}

// publish writes as long as it may.
func (w *logWriter) publish() error {
	r := w.run
	template := w.message()
	step := prefixed(r.size)
	header := len(template) - len(crlf) - r.plan.batch*step
	if r.plan.batch == 1 {
		header = len(template) - len(crlf) - r.size
	}
	var frames []byte
	sequence := uint64(0)
	for {
		select {
		case _, ok := <-w.free:
			if !ok {
				return nil // the reading goroutine says why
			}
		default:
			if len(frames) > 0 {
				if err := w.conn.out.write(frames); err != nil {
					return err
				}
				frames = frames[:0]
			}
			if _, ok := <-w.free; !ok {
				return nil
			}
		}
		if !r.reserve() {
			if len(frames) > 0 {
				return w.conn.out.write(frames)
			}
			return nil
		}
		begin := len(frames)
		frames = append(frames, template...)
		for rest := frames[begin+header:]; len(rest) > len(crlf); sequence++ {
			if r.plan.batch > 1 {
				rest = rest[step-r.size:]
			}
			putRecord(rest[:r.size], w.number, sequence, r.id)
			rest = rest[r.size:]
		}
		n := w.asked.Load()
		w.sent[n%int64(len(w.sent))].Store(now())
		w.asked.Store(n + 1)
		if len(frames) >= 64<<10 {
			if err := w.conn.out.write(frames); err != nil {
				return err
			}
			frames = frames[:0]
		}
	}
}

// message is a whole frame but for what the records say.
func (w *logWriter) message() []byte {
	r := w.run
	if r.plan.batch == 1 {
		return append(fmt.Appendf(nil, "PUB %s %s %d\r\n", r.subject, w.inbox, r.size), append(make([]byte, r.size), crlf...)...)
	}
	header := fmt.Sprintf("NATS/1.0\r\nCarillon-Records: %d\r\n\r\n", r.plan.batch)
	out := fmt.Appendf(nil, "HPUB %s %s %d %d\r\n%s", r.subject, w.inbox, len(header), len(header)+r.plan.batch*prefixed(r.size), header)
	for range r.plan.batch {
		out = append(binary.AppendUvarint(out, uint64(r.size)), make([]byte, r.size)...)
	}
	return append(out, crlf...)
}

// over ends the reading when all that was written is acknowledged.
func (w *logWriter) over() error {
	w.at = 0
	switch {
	case w.refusal != nil:
		return w.refusal
	case w.done.Load() && w.acked == w.asked.Load():
		return errDone
	}
	return nil
}

func (w *logWriter) onMessage(_, _, payload []byte) {
	if w.at == 0 {
		w.at = now()
	}
	var count []byte
	if _, after, found := bytes.Cut(payload, []byte(`"count":`)); found {
		count = after
	}
	n := 0
	for _, c := range count {
		if c < '0' || c > '9' {
			break
		}
		n = n*10 + int(c-'0')
	}
	r := w.run
	if bytes.Contains(payload, []byte(`"error"`)) || !bytes.Contains(payload, []byte(`"seq":`)) || r.plan.batch > 1 && n != r.plan.batch {
		if w.refusal == nil {
			w.refusal = logRefusal(payload, r.plan.batch)
		}
		return
	}
	sent := w.sent[w.acked%int64(len(w.sent))].Load()
	w.acked++
	if r.counts(w.at) {
		w.counted += int64(r.plan.batch)
		w.latency.record(w.at - sent)
	}
	w.free <- struct{}{} // it has room for all that is under way
}

func logRefusal(payload []byte, batch int) error {
	var answer struct {
		Error *struct {
			Description string `json:"description"`
			Text        string `json:"text"`
		} `json:"error"`
	}
	switch err := json.Unmarshal(payload, &answer); {
	case len(payload) == 0:
		return fmt.Errorf("nobody answers for the stream")
	case err == nil && answer.Error != nil:
		return fmt.Errorf("refused: %s%s", answer.Error.Description, answer.Error.Text)
	}
	return fmt.Errorf("the server doesn't know batches of records: a message of %d was answered with %.200q", batch, payload)
}

func (w *logWriter) onInfo([]byte) {}
func (w *logWriter) onPing()       { _ = w.conn.out.write(pong) }
func (w *logWriter) onPong()       {}
func (w *logWriter) onError(text []byte) {
	if w.refusal == nil {
		w.refusal = fmt.Errorf("server says %q", text)
	}
}
