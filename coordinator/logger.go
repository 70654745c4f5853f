package coordinator

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"

	"go.etcd.io/etcd/server/v3/lease"
	"go.uber.org/zap/zapcore"
)

// slogCore hands etcd's log, from warnings up, to this program's.
type slogCore struct {
	log     *slog.Logger
	laptop  bool // it is one person's: that the machine is busy is no warning to them
	closing *atomic.Bool
	fields  []zapcore.Field
}

// expected are warnings about what was chosen with care; they would only worry a reader.
var expected = []string{
	"Running http and grpc server on single port",
	"serving client traffic insecurely",            // on a unix socket of the user's own
	"simple token is not cryptographically signed", // tokens are not used; certificates are
	// A new volume has none until the next look, seconds later.
	"Failed to detect schema version",
	"failed to update storage version", // the same
}

// busy are warnings that something took long, and was done. Who runs a cluster looks at its disks
// then; who runs a member on a laptop can do nothing about them. Whatever was refused is not here.
var busy = []string{
	"slow fdatasync",
	"apply request took too long",
	"request stats", // of a slow one
	"waiting for ReadIndex response took too long",
	"ignored out-of-date read index response",
	"timed out sending read state", // it is asked for again
	"A tick missed to fire",        // after the member's id
	// A member alone stands for election before it has applied its own first entry; it stands
	// again.
	"cannot campaign at term",
}

func (c slogCore) Enabled(level zapcore.Level) bool {
	return level >= zapcore.WarnLevel && !c.closing.Load() && c.log.Enabled(context.Background(), slogLevel(level))
}

func (c slogCore) With(fields []zapcore.Field) zapcore.Core {
	c.fields = append(c.fields[:len(c.fields):len(c.fields)], fields...)
	return c
}

func (c slogCore) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(entry.Level) {
		return checked.AddCore(entry, c)
	}
	return checked
}

func (c slogCore) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	says := func(part string) bool { return strings.Contains(entry.Message, part) }
	if slices.ContainsFunc(expected, says) || slices.ContainsFunc(fields, leaseGone) || says(readFailed) && slices.ContainsFunc(fields, abandoned) {
		return nil
	}
	level := slogLevel(entry.Level)
	if c.laptop && level == slog.LevelWarn && slices.ContainsFunc(busy, says) {
		level = slog.LevelInfo
	}
	encoder := zapcore.NewMapObjectEncoder()
	attributes := make([]slog.Attr, 0, len(c.fields)+len(fields)+1)
	attributes = append(attributes, slog.String("from", "etcd"))
	for _, set := range [][]zapcore.Field{c.fields, fields} {
		for _, field := range set {
			field.AddTo(encoder)
			attributes = append(attributes, slog.Any(field.Key, encoder.Fields[field.Key]))
		}
	}
	c.log.LogAttrs(context.Background(), level, entry.Message, attributes...)
	return nil
}

// leaseGone reports whether a request failed for a lease that is over. Whoever sees that a broker
// is dead ends its lease, two at once perhaps, and it may run out before; each learns of it by the
// answer.
func leaseGone(field zapcore.Field) bool {
	err, _ := field.Interface.(error)
	return errors.Is(err, lease.ErrLeaseNotFound)
}

// readFailed is what etcd says of a transaction that could not read, also if its client gave up
// just then, as a broker does that stops.
const readFailed = "unexpected error during readonly txn"

// abandoned reports whether a request was ended by its client, or came too late for it.
func abandoned(field zapcore.Field) bool {
	err, _ := field.Interface.(error)
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

func (c slogCore) Sync() error { return nil }

func slogLevel(level zapcore.Level) slog.Level {
	switch {
	case level >= zapcore.ErrorLevel:
		return slog.LevelError
	case level == zapcore.WarnLevel:
		return slog.LevelWarn
	case level == zapcore.InfoLevel:
		return slog.LevelInfo
	default:
		return slog.LevelDebug
	}
}
