package bench

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
)

// catchUp is how many bytes an answer has when the one way through the whole log goes on behind the
// time that is measured.
const catchUp = 1 << 20

// logReader is one reader: it has a few requests under way, and asks for more as they are answered.
type logReader struct {
	run     *logRun
	conn    *wire
	inbox   string
	first   bool // of all readers, which goes through the whole log once whatever time it takes
	next    uint64
	flying  int
	passes  int // through the whole log
	answers uint64
	seen    uint64 // records of this pass
	pass    *logPass
	found   Deliveries
	at      int64
	counted int64
	request []byte
	out     []byte
	failed  error
}

// read is one reader's part. It returns how many records were read within the time, and what was
// wrong with them.
func (r *logRun) read(ctx context.Context, number int) (counted int64, found Deliveries, err error) {
	d := &logReader{run: r, inbox: fmt.Sprintf("_INBOX.%016x.r%d.", r.id, number), first: number == 0, next: 1, pass: newLogPass(r.id, r.size, r.plan.publishers)}
	if d.conn, err = dialWire(ctx, r.target.address(number), d.inbox+"*"); err != nil {
		return 0, found, err
	}
	defer d.conn.socket.Close()
	interrupted := context.AfterFunc(ctx, func() { _ = d.conn.socket.Close() })
	defer interrupted()
	for range r.plan.reads {
		d.ask()
	}
	if err := d.flush(); err != nil {
		return 0, found, err
	}
	err = d.conn.read(d, 3*(max(catchUp, r.plan.batch*prefixed(r.size))+4<<10), r.limits.Drain, d.over)
	if d.passes == 0 { // what was seen was checked; how much there is, another reader finds
		d.found = Deliveries{Expected: int64(d.seen), Received: int64(d.seen), Unexpected: d.pass.wrong, OutOfOrder: d.pass.outOfOrder}
	} else {
		d.found.Unexpected += d.pass.wrong
		d.found.OutOfOrder += d.pass.outOfOrder
	}
	switch {
	case err == errDone:
		return d.counted, d.found, nil
	case d.failed != nil:
		return d.counted, d.found, d.failed
	case ctx.Err() != nil:
		return d.counted, d.found, context.Cause(ctx)
	}
	return d.counted, d.found, fmt.Errorf("after %d answers: %w", d.answers, err)
}

// ask notes the next request, if there is to be one.
func (d *logReader) ask() {
	r := d.run
	timeLeft := now() < r.to.Load()
	if d.next > r.total {
		if d.flying > 0 || !timeLeft {
			return // the end of a pass, before another begins
		}
		d.next = 1
	}
	if !timeLeft && (!d.first || d.passes > 0 || d.flying >= batchWindow) {
		return
	}
	count := r.plan.batch
	if !timeLeft {
		count = max(count, catchUp/prefixed(r.size)) // what isn't measured needn't be slow
	}
	count = int(min(uint64(count), r.total+1-d.next))
	d.request = strconv.AppendUint(append(d.request[:0], `{"offset":`...), d.next, 10)
	d.request = strconv.AppendInt(append(d.request, `,"max_records":`...), int64(count), 10)
	d.request = strconv.AppendInt(append(d.request, `,"max_bytes":`...), int64(count*prefixed(r.size)), 10)
	d.request = append(d.request, '}')
	d.out = append(append(append(d.out, "PUB $CARILLON.API.RECORDS."...), r.stream...), ".0 "...)
	d.out = strconv.AppendInt(append(d.out, d.inbox...), int64(count), 10)
	d.out = strconv.AppendInt(append(d.out, ' '), int64(len(d.request)), 10)
	d.out = append(append(append(d.out, crlf...), d.request...), crlf...)
	d.next += uint64(count)
	d.flying++
}

func (d *logReader) flush() error {
	if len(d.out) == 0 {
		return nil
	}
	err := d.conn.out.write(d.out)
	d.out = d.out[:0]
	return err
}

// over sends what was asked for, and ends the reading when nothing more is to come.
func (d *logReader) over() error {
	d.at = 0
	if d.failed != nil {
		return d.failed
	}
	if d.flying == 0 && len(d.out) == 0 {
		return errDone
	}
	return d.flush()
}

func (d *logReader) onMessage(subject, _, payload []byte) {
	if d.failed != nil {
		return
	}
	if d.at == 0 {
		d.at = now()
	}
	r := d.run
	count, err := strconv.ParseUint(string(bytes.TrimPrefix(subject, []byte(d.inbox))), 10, 64)
	if err != nil || uint64(len(payload)) != count*uint64(prefixed(r.size)) {
		d.failed = fmt.Errorf("%d records were asked for: %w", count, logRefusal(payload, r.plan.batch))
		return
	}
	d.answers++
	d.flying--
	d.pass.take(payload)
	d.seen += count
	if r.counts(d.at) {
		d.counted += int64(count)
	}
	if d.seen == r.total {
		if d.passes == 0 {
			d.found = d.pass.compare(r.written)
		}
		d.passes++
		d.seen, d.pass = 0, newLogPass(r.id, r.size, r.plan.publishers)
		for range r.plan.reads {
			d.ask()
		}
		return
	}
	d.ask()
}

func (d *logReader) onInfo([]byte) {}
func (d *logReader) onPing()       { _ = d.conn.out.write(pong) }
func (d *logReader) onPong()       {}
func (d *logReader) onError(text []byte) {
	if d.failed == nil {
		d.failed = fmt.Errorf("server says %q", text)
	}
}
