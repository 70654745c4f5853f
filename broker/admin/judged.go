package admin

import (
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/carillon-mq/carillon/broker/filter"
	"github.com/carillon-mq/carillon/broker/records"
	"github.com/carillon-mq/carillon/broker/subject"
	"github.com/carillon-mq/carillon/broker/topic"
)

// Bounds of reading records with a condition, each with the reason for its value.
const (
	// judgesAtOnce is the number of such requests that are served, most of which wait for clients to
	// take their answers. Each holds memory for its answer, at most 8 MiB.
	judgesAtOnce = 8
	// judgesQueued is the number of requests that wait for those: some seconds of work for one core.
	judgesQueued = 256
	// mostConditions and mostConditionBytes bound the compiled conditions that are kept for the next
	// request of the same scan. Compiling one takes some tenths of a millisecond.
	mostConditions     = 64
	mostConditionBytes = 4 << 20
	// mostPatterns bounds the patterns by which the subject of each record is judged.
	mostPatterns = 64
	// maxRecordsRequest is more than a request with the longest condition takes, with any escaping.
	maxRecordsRequest = 32 << 10
	// judgedRoom is more than the further lines of an answer's header take. One of them is the reason
	// why a record can't be judged, with up to whyBytes.
	judgedRoom = 1 << 10
	whyBytes   = 512
)

// The headers of an answer with judged records, beside those of others.
const (
	headerExamined = "Carillon-Examined"
	headerUnjudged = "Carillon-Unjudged"
	headerWhy      = "Carillon-Unjudged-Why"
	headerLatest   = "Carillon-Latest"
)

// judged reports whether each record is looked at: the request chooses among them, or its user may
// not read all.
func (r *read) judged() bool { return r.request.judged() || r.chooses }

// judged reports whether the broker chooses among the records.
func (r *RecordsRequest) judged() bool { return r.Where != "" || len(r.Subjects) > 0 }

// checkJudged checks what says which records are wanted. A condition is compiled later: that takes
// too long for the goroutine of a connection.
func (r *RecordsRequest) checkJudged() *Error {
	if !r.judged() && r.End > 0 {
		return refuse(BadRequest, "end of %d without where and subjects (use max_records)", r.End)
	}
	if len(r.Subjects) > mostPatterns {
		return refuse(BadRequest, "%d subjects (use up to %d, with wildcards)", len(r.Subjects), mostPatterns)
	}
	for _, s := range r.Subjects {
		if !subject.ValidPattern([]byte(s)) {
			return refuse(BadRequest, "%.100q in subjects is no subject", s)
		}
	}
	return nil
}

// serveJudged answers a request that looks at each record, or makes it wait for new records.
func (s *Server) serveJudged(w *worker, r *read, shard *topic.ShardLeader, q records.Query, may sight) {
	s.judging <- struct{}{}
	if !s.hub.Interested(r.reply) { // the client has gone
		<-s.judging
		return
	}
	data, got, refusal := s.judge(w, r, shard, q, may)
	<-s.judging
	if refusal != nil {
		s.refuse(r.reply, refusal)
		return
	}
	if got.Examined == 0 && got.Next >= got.High && q.Pin == nil && s.waits(r, shard, got.Next) {
		return
	}
	if r.request.judged() {
		w.header = appendJudgedHeader(w.header[:0], &got, q.Full)
	} else {
		w.header = appendRecordsHeader(w.header[:0], &got.Range, q.Full)
	}
	s.gather(w, r.reply, data)
	s.flush(w) // the next request may take long
}

// judge compiles the condition of a request, and reads the records that match. The caller has its
// turn.
func (s *Server) judge(
	w *worker, r *read, shard *topic.ShardLeader, q records.Query, may sight,
) ([]byte, records.Judged, *Error) {
	of := records.Selection{End: r.request.End, Dense: !r.request.judged()}
	for _, pattern := range r.request.Subjects {
		of.Subjects = append(of.Subjects, []byte(pattern))
	}
	if r.request.Where != "" {
		condition, err := s.conditions.get(r.request.Where)
		if err != nil {
			return nil, records.Judged{}, refuse(BadRequest, "where: %v", err)
		}
		of.Judge, of.Slow = records.ByFilter(condition), !condition.IsQuick()
		if may.certain { // which segments they pass may tell of hidden records
			of.Statistics, of.Probe = &s.statistics, condition.NewProbe()
		}
	}
	begin := w.used + len(r.reply) + headerRoom + judgedRoom
	data, got, err := w.ReadJudged(&shard.Reader, q, of, w.loan.Bytes()[:begin])
	if err != nil {
		return nil, got, unreadable(r, err)
	}
	return data, got, nil
}

func appendJudgedHeader(dst []byte, got *records.Judged, full bool) []byte {
	dst = appendRecordsLines(dst, &got.Range, full)
	dst = appendLine(dst, headerExamined, uint64(got.Examined))
	dst = appendLine(dst, headerUnjudged, uint64(got.Failed))
	if got.Examined > 0 {
		dst = appendLine(dst, headerLatest, uint64(got.Latest))
	}
	if got.Why != nil {
		dst = append(append(dst, headerWhy...), ": "...)
		dst = append(append(dst, printableWhy(got.Why)...), "\r\n"...)
	}
	return append(dst, "\r\n"...)
}

// printableWhy is the text of an error as the value of a header.
func printableWhy(err error) string {
	why := err.Error()
	if len(why) > whyBytes {
		why = why[:whyBytes]
	}
	return strings.Map(func(c rune) rune {
		if unicode.IsControl(c) {
			return ' '
		}
		return c
	}, strings.ToValidUTF8(why, ""))
}

// newJudging returns what bounds the requests that judge at the same time: half the cores, so that
// publishers and consumers have the others.
func newJudging() chan struct{} { return make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)) }

// conditions are the conditions of the newest requests. A scan asks with the same one again and
// again.
type conditions struct {
	mu    sync.Mutex
	of    []*filter.Filter // the last used one last
	bytes int
}

// get returns a condition, and compiles it if needed. The error says what is wrong with it.
func (c *conditions) get(text string) (*filter.Filter, error) {
	if f := c.kept(text); f != nil {
		return f, nil
	}
	f, err := filter.Shared(text)
	if err != nil {
		return nil, err
	}
	c.keep(f)
	return f, nil
}

func (c *conditions) kept(text string) *filter.Filter {
	c.mu.Lock()
	defer c.mu.Unlock()
	for n, f := range c.of {
		if f.String() == text {
			c.of = append(slices.Delete(c.of, n, n+1), f)
			return f
		}
	}
	return nil
}

func (c *conditions) keep(f *filter.Filter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.Contains(c.of, f) {
		return // another request has compiled it
	}
	c.of, c.bytes = append(c.of, f), c.bytes+f.Bytes()
	for len(c.of) > mostConditions || c.bytes > mostConditionBytes && len(c.of) > 1 {
		c.bytes -= c.of[0].Bytes()
		c.of = slices.Delete(c.of, 0, 1)
	}
}

// waits makes a request wait for records from an offset on, if it is to wait and its time is not
// over. Then it is answered later.
func (s *Server) waits(r *read, shard *topic.ShardLeader, next uint64) bool {
	if r.deadline.IsZero() || !time.Now().Before(r.deadline) {
		return false
	}
	r.request.Offset = next
	taken, dropped := s.polls.wait(shard, r)
	if !taken {
		dropped = append(dropped, r)
	}
	for _, other := range dropped {
		s.refuse(other.reply, s.tooManyWait())
	}
	return true
}
