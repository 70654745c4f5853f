package main

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/pflag"
)

// logging is the log flags of the long-running subcommands.
type logging struct{ format, level string }

func (l *logging) flags(f *pflag.FlagSet, level string) {
	f.StringVar(&l.format, "log-format", "text", "format of the log: text or json")
	f.StringVar(&l.level, "log-level", level, "least level that is logged: debug, info, warn or error")
}

func (l *logging) logger(to io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(l.level)); err != nil {
		return nil, usageError{fmt.Errorf("--log-level %q: choose debug, info, warn or error", l.level)}
	}
	options := &slog.HandlerOptions{Level: level}
	switch l.format {
	case "text":
		return slog.New(slog.NewTextHandler(to, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(to, options)), nil
	}
	return nil, usageError{fmt.Errorf("--log-format %q: choose text or json", l.format)}
}
