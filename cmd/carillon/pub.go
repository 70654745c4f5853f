package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/carillon-mq/carillon/broker/subject"
)

func newPubCommand() *cobra.Command {
	var (
		client  clientFlags
		headers []string
		reply   string
		count   int
		quiet   bool
		ack     bool
		timeout time.Duration
	)
	cmd := &cobra.Command{
		Use:   "pub SUBJECT [MESSAGE]",
		Short: "Publish a message",
		Long: `Publish a message, and see it arrive at the broker. Without MESSAGE, or with -, it is read from
standard input.

With --ack it is to be kept: a Topic must have the subject, and has acknowledged the message, as its
durability has it, when this ends with exit code 0. Without, nobody need be there.`,
		Example: `  carillon pub greet.world hello
  echo hello | carillon pub greet.world
  carillon pub greet.world hello --header Content-Type:text/plain --count 10
  carillon pub orders.eu '{"total": 12}' --ack --header Nats-Msg-Id:4711`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 {
				return usageError{fmt.Errorf("pub takes a subject and at most one message (quote it if it has blanks), but was given %d arguments", len(args))}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := newMessage(args[0], reply, headers)
			if err != nil {
				return err
			}
			if count < 1 {
				return usageError{fmt.Errorf("--count %d: publish at least one", count)}
			}
			if timeout <= 0 {
				return usageError{fmt.Errorf("--timeout %s: write for example 5s", timeout)}
			}
			if ack && reply != "" {
				return usageError{errors.New("--ack and --reply: the acknowledgement is the answer; choose one")}
			}
			nc, err := client.connect(cmd.Context(), "carillon pub")
			if err != nil {
				return err
			}
			defer nc.Close()
			if len(args) == 2 && args[1] != "-" {
				m.Data = []byte(args[1])
			} else if m.Data, err = readMessage(cmd.InOrStdin(), nc.MaxPayload()); err != nil {
				return err
			}
			if ack {
				kept, err := publishKept(cmd.Context(), nc, m, count, timeout)
				if !quiet && kept.count > 0 {
					fmt.Fprintln(cmd.OutOrStdout(), kept.text(len(m.Data)))
				}
				return err
			}
			for range count {
				if err := nc.PublishMsg(m); err != nil {
					return publishError(nc, m, err, timeout)
				}
			}
			if err := nc.FlushTimeout(timeout); err != nil {
				return publishError(nc, m, err, timeout)
			}
			if err := nc.LastError(); err != nil {
				return publishError(nc, m, err, timeout)
			}
			if !quiet {
				fmt.Fprintf(cmd.OutOrStdout(), "published %d × %d bytes to %s\n", count, len(m.Data), m.Subject)
			}
			return nil
		},
	}
	f := cmd.Flags()
	client.flags(f)
	f.StringArrayVar(&headers, "header", nil, "a header as `NAME:VALUE`; may be repeated")
	f.StringVar(&reply, "reply", "", "subject for answers")
	f.IntVar(&count, "count", 1, "how often to publish it")
	f.BoolVarP(&quiet, "quiet", "q", false, "print nothing")
	f.BoolVar(&ack, "ack", false, "wait until a Topic has kept it, and print where")
	f.DurationVar(&timeout, "timeout", connectTimeout, "how long to wait for the answer to each message")
	return cmd
}

func newMessage(to, reply string, headers []string) (*nats.Msg, error) {
	m := nats.NewMsg(to)
	m.Reply = reply
	if !subject.Valid([]byte(to)) {
		return nil, usageError{fmt.Errorf("%q is not a subject to publish to: tokens divided by dots, without blanks and wildcards", to)}
	}
	for _, h := range headers {
		name, value, ok := strings.Cut(h, ":")
		if !ok || name == "" {
			return nil, usageError{fmt.Errorf("--header %q is not NAME:VALUE", h)}
		}
		m.Header[name] = append(m.Header[name], strings.TrimSpace(value))
	}
	return m, nil
}

// readMessage reads a message of at most the size that the server accepts.
func readMessage(in io.Reader, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(in, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read the message: %w", err)
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("the message is longer than the %d bytes that the server takes", limit)
	}
	return data, nil
}

func publishError(nc *nats.Conn, m *nats.Msg, err error, timeout time.Duration) error {
	switch {
	case errors.Is(err, nats.ErrMaxPayload):
		return fmt.Errorf("publish to %s: %d bytes are more than the %d that the server takes", m.Subject, len(m.Data), nc.MaxPayload())
	case errors.Is(err, nats.ErrTimeout):
		return fmt.Errorf("publish to %s: no answer from the server within %s; the message may or may not have arrived", m.Subject, timeout)
	}
	return fmt.Errorf("publish to %s: %w", m.Subject, err)
}
