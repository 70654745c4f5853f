package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"
)

func newSubCommand() *cobra.Command {
	var (
		client        clientFlags
		queue, output string
		count         int
		timeout       time.Duration
	)
	cmd := &cobra.Command{
		Use:   "sub SUBJECT...",
		Short: "Print messages as they come",
		Long: `Print messages as they come, until Ctrl-C, --count or --timeout. Ctrl-C is a good end; when
--timeout ends it before --count was reached, the exit code is 1.`,
		Example: `  carillon sub 'greet.>'
  carillon sub orders.created --queue workers
  carillon sub events --count 1 --timeout 10s --output raw`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError{errors.New("sub takes at least one subject; > is all of them")}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			show := outputs[output]
			if show == nil {
				return usageError{fmt.Errorf("--output %q: choose text, json or raw", output)}
			}
			if count < 0 || timeout < 0 {
				return usageError{errors.New("--count and --timeout can't be negative")}
			}
			notes := cmd.ErrOrStderr()
			nc, err := client.connect(cmd.Context(), "carillon sub",
				nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
					if err != nil {
						fmt.Fprintf(notes, "disconnected: %v; connecting again\n", err)
					}
				}),
				nats.ReconnectHandler(func(nc *nats.Conn) {
					fmt.Fprintf(notes, "connected again to %s; what was published meanwhile did not come here\n", nc.ConnectedUrlRedacted())
				}),
				nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { fmt.Fprintln(notes, "server:", err) }))
			if err != nil {
				return err
			}
			defer nc.Close()
			messages := make(chan *nats.Msg, 64<<10)
			for _, subject := range args {
				if _, err := nc.ChanQueueSubscribe(subject, queue, messages); err != nil {
					return usageError{fmt.Errorf("subscribe to %q: %w", subject, err)}
				}
			}
			if err := nc.FlushTimeout(connectTimeout); err != nil {
				return fmt.Errorf("subscribe: %w", err)
			}
			if err := nc.LastError(); err != nil {
				return fmt.Errorf("subscribe: %w", err)
			}
			var late <-chan time.Time
			if timeout > 0 {
				late = time.After(timeout)
			}
			for n := 0; count == 0 || n < count; n++ {
				select {
				case m := <-messages:
					if err := show(cmd.OutOrStdout(), m); err != nil {
						return fmt.Errorf("print a message: %w", err)
					}
				case <-cmd.Context().Done():
					return nil
				case <-late:
					if count == 0 {
						return nil
					}
					return fmt.Errorf("%d of %d messages came within %s", n, count, timeout)
				}
			}
			return nil
		},
	}
	f := cmd.Flags()
	client.flags(f)
	f.StringVar(&queue, "queue", "", "queue group: each message goes to one of its members")
	f.StringVarP(&output, "output", "o", "text", "text, json (one object a line) or raw (the payload alone, a line end after it)")
	f.IntVar(&count, "count", 0, "end after so many messages (default never)")
	f.DurationVar(&timeout, "timeout", 0, "end after this time (default never)")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"text", "json", "raw"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

var outputs = map[string]func(io.Writer, *nats.Msg) error{
	"text": func(w io.Writer, m *nats.Msg) error {
		var text strings.Builder
		fmt.Fprintf(&text, "%s", m.Subject)
		if m.Reply != "" {
			fmt.Fprintf(&text, " (reply to %s)", m.Reply)
		}
		for _, name := range sortedNames(m.Header) {
			for _, value := range m.Header[name] {
				fmt.Fprintf(&text, "\n  %s: %s", name, value)
			}
		}
		fmt.Fprintf(&text, "\n%s\n", m.Data)
		_, err := io.WriteString(w, text.String())
		return err
	},
	"json": func(w io.Writer, m *nats.Msg) error {
		// Data is base64, since a payload may be any bytes.
		return json.NewEncoder(w).Encode(struct {
			Subject string      `json:"subject"`
			Reply   string      `json:"reply,omitempty"`
			Header  nats.Header `json:"header,omitempty"`
			Data    []byte      `json:"data"`
		}{m.Subject, m.Reply, m.Header, m.Data})
	},
	"raw": func(w io.Writer, m *nats.Msg) error {
		_, err := w.Write(append(m.Data, '\n'))
		return err
	},
}

func sortedNames(h nats.Header) []string {
	names := make([]string, 0, len(h))
	for name := range h {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
