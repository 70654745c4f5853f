package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// ErrNotCarillon says that nobody answers requests of this package where the connection leads to,
// or that the broker there is of a version without live queries.
var ErrNotCarillon = errors.New("no broker answers this request: is it Carillon, and a version that knows it?")

// answerTime is how much longer than it was told to wait a broker may take for an answer, before it
// is asked again.
const answerTime = 2 * time.Second

// firstLook is how long after a request it is looked first whether that is denied; after that each
// look takes twice as long to come. A connection has its last error only, so of several requests
// that are denied each has to look before the next one's refusal comes.
const firstLook = 20 * time.Millisecond

// Reader reads one shard of a Topic in order, from an offset that it keeps itself: nothing is noted
// anywhere else, so a program that is to go on where it was keeps Offset together with what it made
// of the records. It fetches ahead. One goroutine uses it at a time.
type Reader struct {
	nc      *nats.Conn
	subject string
	options ReaderOptions
	more    string // what the requests say besides the offset
	inbox   string
	sub     *nats.Subscription
	offset  uint64
	batch   Batch

	snapshot *Snapshot // nil: what there is now is read
	shard    Shard     // of it
	it       iterator

	come chan struct{} // something came

	mu    sync.Mutex
	ready []fetched
	next  uint64 // where the next request begins
	// gaps: answers may leave out offsets in between. Brokers of earlier versions refuse that.
	gaps    bool
	left    int    // records until options.Limit
	number  uint64 // of the request that is under way
	asking  bool
	timer   *time.Timer // looks for a refusal, and asks again
	again   time.Time   // when it asks again
	since   error       // the connection's last error that is not about what is under way
	backoff time.Duration
	caught  time.Time // when it was answered that there is nothing behind next; zero: there was something
	closed  bool
}

// readRequest is what all requests of a Reader have, in docs/protocol.md's words.
type readRequest struct {
	MaxBytes int      `json:"max_bytes"`
	Wait     int64    `json:"wait_ms"`
	Form     string   `json:"form"`
	Where    string   `json:"where,omitempty"`
	Subjects []string `json:"subjects,omitempty"`
	End      uint64   `json:"end,omitempty"`

	Attributes bool `json:"attributes,omitempty"`
}

// fetched is a batch, or why there is none.
type fetched struct {
	batch Batch
	next  uint64
	err   error
}

// NewReader reads a shard of a Topic from an offset on; 0: from the first record that is kept. A
// Topic has the shards 0 up to, not including, its number of shards. Close ends it; the connection
// stays the program's.
func NewReader(nc *nats.Conn, topic string, shard int, offset uint64, options ReaderOptions) (*Reader, error) {
	return newReader(nc, topic, shard, offset, options, nil)
}

func newReader(nc *nats.Conn, topic string, shard int, offset uint64, options ReaderOptions, snapshot *Snapshot) (*Reader, error) {
	if err := options.complete(); err != nil {
		return nil, fmt.Errorf("read shard %d of topic %s: %w", shard, topic, err)
	}
	form := "plain"
	if options.Full {
		form = "full"
	}
	r := &Reader{
		nc: nc, subject: "$CARILLON.API.RECORDS." + topic + "." + strconv.Itoa(shard), options: options, offset: offset, next: offset, gaps: !options.judged(), left: options.Limit,
		inbox: nc.NewInbox(), come: make(chan struct{}, 1),
	}
	more, err := json.Marshal(readRequest{
		MaxBytes: options.MaxBytes, Wait: options.Wait.Milliseconds(), Form: form,
		Where: options.Where, Subjects: options.Subjects, End: options.End, Attributes: options.Attributes,
	})
	if err != nil {
		return nil, fmt.Errorf("read shard %d of topic %s: %w", shard, topic, err)
	}
	r.more = "," + string(more[1:])
	r.it = r.batch.iterator()
	if snapshot != nil {
		r.snapshot, r.shard = snapshot, snapshot.shards[shard]
		r.more = fmt.Sprintf(`,"snapshot":%q`, snapshot.id) + r.more
	}
	if r.sub, err = nc.Subscribe(r.inbox+".*", r.answered); err != nil {
		return nil, fmt.Errorf("read shard %d of topic %s: %w", shard, topic, err)
	}
	return r, nil
}

// Offset is that of the record that comes next: where a Reader made anew goes on. It is 0 until
// something was read from the first record that is kept.
func (r *Reader) Offset() uint64 { return r.offset }

// CaughtUp returns when a broker last said that the shard has no record from Offset on. ok is false
// if there was one, or nothing has been heard.
func (r *Reader) CaughtUp() (at time.Time, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.caught, len(r.ready) == 0 && !r.caught.IsZero()
}

// Next returns the next record, and waits for it until ctx ends. Its slices are valid until the
// next call. A *[ReadError] with [OutOfRange] or [Damaged] says where to Seek to.
func (r *Reader) Next(ctx context.Context) (record Record, err error) {
	for !r.it.next(&record) {
		if _, err := r.fetch(ctx); err != nil {
			return Record{}, err
		}
	}
	r.offset = record.Offset + 1
	return record, nil
}

// Batch returns the records that come next, as many as one answer brought, or what Next left of
// them. It waits until there are some, or ctx ends, and is valid until the next call. With Where or
// Subjects it may have none, and say how far the broker looked. Errors are those of Next.
func (r *Reader) Batch(ctx context.Context) (*Batch, error) {
	if left := len(r.it.rest); left > 0 && !r.options.Full && !r.batch.gapped {
		b := r.batch
		b.Count = int(b.Next() - r.offset)
		b.First, b.data = r.offset, r.it.rest
		r.batch = b
	} else if left == 0 {
		if _, err := r.fetch(ctx); err != nil {
			return nil, err
		}
	} else { // subjects are said once, and gaps after what was passed, so what is left is read again
		r.seek(r.offset)
		if _, err := r.fetch(ctx); err != nil {
			return nil, err
		}
	}
	r.offset = r.batch.Next()
	r.it.rest, r.it.left = nil, 0
	return &r.batch, nil
}

// Seek goes to an offset; 0: to the first record that is kept. What was fetched is dropped.
func (r *Reader) Seek(offset uint64) {
	r.seek(offset)
	r.batch, r.it = Batch{}, iterator{b: &r.batch}
}

func (r *Reader) seek(offset uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.options.Limit > 0 { // what is dropped does not count
		for i := range r.ready {
			r.left += r.ready[i].batch.Count
		}
		r.left += r.it.left
	}
	r.offset, r.next, r.ready, r.caught = offset, offset, nil, time.Time{}
	r.rest()
}

// rest forgets the request that is under way. mu is held.
func (r *Reader) rest() {
	r.number++ // an answer to it comes too late
	r.asking = false
	if r.timer != nil {
		r.timer.Stop()
	}
}

// Close ends the Reader.
func (r *Reader) Close() error {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return ErrClosed
	}
	r.closed, r.ready = true, nil
	r.rest()
	r.mu.Unlock()
	r.poke()
	if err := r.sub.Unsubscribe(); err != nil && r.nc.IsConnected() {
		return err
	}
	return nil
}

// fetch makes the next answer the batch.
func (r *Reader) fetch(ctx context.Context) (*Batch, error) {
	for {
		r.mu.Lock()
		switch {
		case r.closed:
			r.mu.Unlock()
			return nil, ErrClosed
		case len(r.ready) > 0:
			f := r.ready[0]
			r.ready = r.ready[1:]
			if f.err == nil {
				r.ask()
			}
			r.mu.Unlock()
			if f.err != nil {
				if again, err := r.regain(ctx, f.err); again {
					continue
				} else {
					return nil, err
				}
			}
			r.batch = f.batch
			r.it, r.offset = r.batch.iterator(), r.batch.First
			return &r.batch, nil
		}
		if r.ended() {
			r.mu.Unlock()
			if r.snapshot != nil && errors.Is(r.snapshot.Err(), ErrClosed) {
				return nil, ErrClosed
			}
			return nil, io.EOF
		}
		r.ask()
		r.mu.Unlock()
		select {
		case <-r.come:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// regain has a snapshot held again that isn't, as when another broker has become the leader.
// Otherwise it returns what went wrong.
func (r *Reader) regain(ctx context.Context, because error) (again bool, err error) {
	var e *ReadError
	if r.snapshot == nil || !errors.As(because, &e) || e.Code != Expired {
		return false, because
	}
	if err := r.snapshot.Err(); err != nil {
		return false, err
	}
	shard := r.shard
	if err := r.snapshot.hold(ctx, &shard); err != nil {
		return false, err
	}
	return true, nil
}

func (r *Reader) poke() {
	select {
	case r.come <- struct{}{}:
	default:
	}
}

// ask asks for what comes next, if nothing is under way and not enough is there. mu is held.
func (r *Reader) ask() {
	if r.ended() {
		return
	}
	if r.asking || r.closed || len(r.ready) >= r.options.Ahead || len(r.ready) > 0 && r.ready[len(r.ready)-1].err != nil {
		return
	}
	r.number++
	r.asking, r.since = true, r.nc.LastError()
	r.request()
}

// ended reports whether nothing more is asked for. mu is held.
func (r *Reader) ended() bool {
	return r.snapshot != nil && r.next >= r.shard.High || r.options.End > 0 && r.next >= r.options.End ||
		r.options.Limit > 0 && r.left <= 0
}

// request sends the request that is under way, for the first time or again. mu is held.
func (r *Reader) request() {
	number := r.number
	most := r.options.MaxRecords
	if r.options.Limit > 0 {
		most = min(most, r.left)
	}
	request := strconv.AppendUint([]byte(`{"offset":`), r.next, 10)
	if r.gaps {
		request = append(request, `,"gaps":true`...)
	}
	request = strconv.AppendInt(append(request, `,"max_records":`...), int64(most), 10)
	request = append(request, r.more...)
	if err := r.nc.PublishRequest(r.subject, r.inbox+"."+strconv.FormatUint(number, 10), request); err != nil {
		if r.nc.IsClosed() {
			r.asking = false
			r.ready = append(r.ready, fetched{err: err})
			r.poke()
			return
		}
		r.later(number, firstBackoff)
		return
	}
	r.later(number, r.options.Wait+answerTime)
}

// later asks again if nothing was answered by then. An answer to any of these requests counts, so
// that a broker that is late with each is waited for. mu is held.
func (r *Reader) later(number uint64, in time.Duration) {
	r.again = time.Now().Add(in)
	r.look(number, firstLook)
}

// look looks whether the request that is under way is denied, until it is time to ask again. mu is
// held.
func (r *Reader) look(number uint64, in time.Duration) {
	if r.timer != nil {
		r.timer.Stop()
	}
	r.timer = time.AfterFunc(min(in, time.Until(r.again)), func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.number != number || !r.asking || r.closed {
			return
		}
		if err := denied(r.nc, r.since, r.subject); err != nil {
			r.asking = false
			r.ready = append(r.ready, fetched{err: err})
			r.poke()
			return
		}
		if time.Now().Before(r.again) {
			r.look(number, 2*in)
			return
		}
		r.request()
	})
}

// endsWhenDenied calls end with the refusal of a request on a subject, if one comes before ctx
// ends.
func endsWhenDenied(ctx context.Context, end context.CancelCauseFunc, nc *nats.Conn, since error, subject string) {
	for in := firstLook; ; in *= 2 {
		select {
		case <-time.After(in):
		case <-ctx.Done():
			return
		}
		if err := denied(nc, since, subject); err != nil {
			end(err)
			return
		}
	}
}

// denied returns the refusal of a request on a subject if a broker has sent one since an error of
// the connection, and nil otherwise. It comes to the connection, and no answer to the request.
func denied(nc *nats.Conn, since error, subject string) error {
	err := nc.LastError()
	if errors.Is(err, nats.ErrPermissionViolation) && err != since &&
		strings.Contains(err.Error(), `"`+subject+`"`) {
		return err
	}
	return nil
}

// answered takes one answer. The connection calls it.
func (r *Reader) answered(answer *nats.Msg) {
	number, err := strconv.ParseUint(strings.TrimPrefix(answer.Subject, r.inbox+"."), 10, 64)
	if err != nil {
		return
	}
	b, next, ok, malformed := parseBatch(answer, &r.options)
	r.mu.Lock()
	defer r.mu.Unlock()
	if number != r.number || !r.asking || r.closed {
		return // it was asked again meanwhile
	}
	f := fetched{batch: b, next: next}
	switch {
	case malformed != nil:
		f.err = &ReadError{Code: Malformed, Text: malformed.Error(), Offset: r.next}
	case !ok:
		if f.err = refusal(answer); f.err == nil {
			f.err = &ReadError{Code: Malformed, Text: "an answer without records and without a reason", Offset: r.next}
		}
		if e, ok := f.err.(*ReadError); ok && e.Code == BadRequest && r.gaps {
			r.gaps, r.asking = false, false
			r.ask()
			return
		}
		if e, ok := f.err.(*ReadError); ok && e.passes() {
			r.backoff = min(max(2*r.backoff, firstBackoff), lastBackoff)
			r.later(number, r.backoff)
			return
		}
	}
	r.asking, r.backoff = false, 0
	r.timer.Stop()
	r.caught = time.Time{}
	if f.err == nil {
		was := r.next
		r.next, r.left = next, r.left-b.Count
		if b.Count == 0 && b.Examined == 0 && next >= b.High {
			r.caught = time.Now()
		}
		if b.Count == 0 && (!b.judged || b.Examined == 0 && next <= was) {
			r.ask()
			r.poke() // nothing is asked for if that was the end
			return
		}
	}
	r.ready = append(r.ready, f)
	r.ask()
	r.poke()
}

// refusal is why an answer brings no records, or nil.
func refusal(answer *nats.Msg) error {
	if answer.Header.Get("Status") == "503" && len(answer.Data) == 0 {
		return ErrNotCarillon
	}
	var e struct {
		Error *ReadError `json:"error"`
	}
	if json.Unmarshal(answer.Data, &e) != nil || e.Error == nil {
		return nil
	}
	return e.Error
}
