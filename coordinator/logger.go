package coordinator

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"

	"go.uber.org/zap/zapcore"
)

// slogCore hands etcd's log, from warnings up, to this program's.
type slogCore struct {
	log     *slog.Logger
	closing *atomic.Bool
	fields  []zapcore.Field
}

// expected are warnings about what was chosen with care; they would only worry a reader.
var expected = []string{
	"Running http and grpc server on single port",
	"serving client traffic insecurely",            // on a unix socket of the user's own
	"simple token is not cryptographically signed", // tokens are not used; certificates are
	"Failed to detect schema version",              // a new volume has none until the next look, seconds later
	"failed to update storage version",             // the same
}

func (c slogCore) Enabled(level zapcore.Level) bool {
	return level >= zapcore.WarnLevel && !c.closing.Load() && c.log.Enabled(context.Background(), slogLevel(level))
}

func (c slogCore) With(fields []zapcore.Field) zapcore.Core {
	return slogCore{c.log, c.closing, append(c.fields[:len(c.fields):len(c.fields)], fields...)}
}

func (c slogCore) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(entry.Level) {
		return checked.AddCore(entry, c)
	}
	return checked
}

func (c slogCore) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	for _, prefix := range expected {
		if strings.HasPrefix(entry.Message, prefix) {
			return nil
		}
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
	c.log.LogAttrs(context.Background(), slogLevel(entry.Level), entry.Message, attributes...)
	return nil
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
