package dedup

import (
	"errors"
	"math"
	"time"

	"github.com/carillon-mq/carillon/broker/clock"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/records"
)

// Reading is how a log is read for message ids.
type Reading struct {
	Codec  publish.Codec
	Clock  *clock.Clock
	Window time.Duration // of the Topic
	Budget int64         // how many bytes of the log are read at most
	// Damaged is called with each range of records that can't be read. If it returns an error, the
	// reading ends; otherwise it continues after them, and the Window lists them as Unread.
	Damaged func(damage *log.CorruptError) error
}

// ReadLog replaces the content of the window by the ids at the end of a log. It returns the number
// of ids for which there was no room.
func (w *Window) ReadLog(data *log.Log, r Reading) (forgotten int, err error) {
	c := r.Clock
	now, mono := c.Read()
	if r.Window > 0 && !c.Verdict().Elapsed {
		if !w.Read() {
			w.ForgetBefore(mono, c.Off()) // the ages of all that the log holds are not known
		}
		return 0, nil
	}
	w.ForgetBefore(mono-int64(r.Window), c.Off())
	if r.Window <= 0 {
		return 0, nil
	}
	since, budget := time.Unix(0, now).Add(-r.Window), r.Budget
	start, end, _ := data.Offsets()
	from, missed := end, false
	infos := data.SegmentInfos()
	for i := len(infos) - 1; i >= 0; i-- {
		info := &infos[i]
		if info.End > info.Base && info.Last.Before(since) {
			break
		}
		if from = info.Base; info.Bytes > budget {
			from, missed = info.End-uint64(float64(info.End-info.Base)*float64(budget)/float64(info.Bytes)), true
			break
		}
		budget -= info.Bytes
	}
	var unread []*log.CorruptError // since the last batch
	for from = max(from, start); from < end; {
		_, err := records.ScanBatches(data, from, end, math.MaxInt64, func(b log.Batch, next uint64) (more bool, err error) {
			if missed {
				w.ExpireNow(c.Written(b.Time()) + 1)
				missed = false
			}
			if len(unread) > 0 {
				w.hide(unread, c.Written(b.Time()))
				unread = nil
			}
			n, err := w.Note(r.Codec, c, b, next, int64(r.Window))
			forgotten += n
			return true, err
		})
		if err == nil {
			break
		}
		damage, ok := errors.AsType[*log.CorruptError](err)
		if !ok || damage.Next <= from {
			return forgotten, err
		}
		if err := r.Damaged(damage); err != nil {
			return forgotten, err
		}
		unread = append(unread, damage)
		from = damage.Next
	}
	w.hide(unread, mono)
	return forgotten, nil
}
