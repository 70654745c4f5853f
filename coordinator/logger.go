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

// slogCore passes etcd's log, from warnings up, to this program's.
type slogCore struct {
	log     *slog.Logger
	laptop  bool // warnings that the machine is busy have level Info
	closing *atomic.Bool
	fields  []zapcore.Field
}

// expected are warnings about intended settings, which are dropped.
var expected = []string{
	"Running http and grpc server on single port",
	"serving client traffic insecurely",            // on the user's own unix socket
	"simple token is not cryptographically signed", // certificates are used, and no tokens
	// A new volume has none for some seconds.
	"Failed to detect schema version",
	"failed to update storage version", // the same
}

// busy are warnings about slow operations that succeeded. In a cluster they point to slow disks; on
// a laptop nobody can act on them. Refused operations are not among them.
var busy = []string{
	"slow fdatasync",
	"apply request took too long",
	"request stats", // of a slow request
	"waiting for ReadIndex response took too long",
	"ignored out-of-date read index response",
	"timed out sending read state", // it is retried
	"A tick missed to fire",        // after the member's id
	// A single member begins an election before it has applied its first entry, and tries again.
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

// leaseGone reports whether a request failed because its lease has ended. Several brokers may
// revoke the lease of a dead one, and it may expire before.
func leaseGone(field zapcore.Field) bool {
	err, _ := field.Interface.(error)
	return errors.Is(err, lease.ErrLeaseNotFound)
}

// readFailed is etcd's message about a transaction that could not read, for example because its
// client, a stopping broker, cancelled it.
const readFailed = "unexpected error during readonly txn"

// abandoned reports whether a request was cancelled or timed out at its client.
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
