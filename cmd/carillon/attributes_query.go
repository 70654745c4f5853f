package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/carillon-mq/carillon/client"
)

func newAttributesQueryCommand() *cobra.Command {
	var (
		m        manageFlags
		asked    client.QueryOptions
		messages bool
	)
	cmd := &cobra.Command{
		Use:   "query [CONDITION]",
		Short: "Follow the subjects whose attributes match a condition, and their messages",
		Long: `Print the subjects whose attributes match a condition, then each that comes and goes, and the messages that
are published on them meanwhile, until Ctrl-C. Without a condition all subjects with attributes match.

CONDITION is a CEL expression (https://cel.dev) over "attributes" and "subject". With --syntax cqbs it is
one of the CQBS paper, with =, !=, like, has, not, and, or. --content judges messages, over "subject",
"headers" and "json".

A subject is printed as new before its first message, and after del nothing of it comes. What is published
while the connection is lost does not come; what came and went meanwhile is printed afterwards.

--output json prints an object in each line: "event" is new, del, message, reopened (the connection was
lost) or ready (at the beginning, and after reopened: all that match were printed). "json" is the payload
of a message if that is JSON, else "data" is its base64.`,
		Example: `  carillon attributes query 'attributes.room == "410" && has(attributes.floor)'
  carillon attributes query 'attributes.floor > 3' --filter 'sensors.>' --messages=false
  carillon attributes query 'attributes.floor > 3' --content 'json.celsius > 30.0'
  carillon attributes query --syntax cqbs 'room = "410" and not has floor'
  carillon attributes query 'attributes.room == "410"' --output json | jq -c .subject`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usageError{fmt.Errorf("%s takes one condition, but was given %d arguments (put it in quotes; see %[1]s --help)", cmd.CommandPath(), len(args))}
			}
			return nil
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				asked.Where = args[0]
			}
			switch {
			case asked.Syntax != "cel" && asked.Syntax != "cqbs":
				return usageError{fmt.Errorf("--syntax %q: choose cel or cqbs", asked.Syntax)}
			case asked.Where == "" && asked.Syntax == "cqbs":
				return usageError{errors.New("--syntax cqbs: write a condition in it")}
			case asked.Content != "" && !messages:
				return usageError{errors.New("--content chooses among messages, and --messages=false asks for none (leave out one of them)")}
			}
			asked.NoMessages = !messages
			b, err := m.connect(cmd)
			if err != nil {
				return err
			}
			defer b.close()
			return b.follow(cmd.Context(), asked, followPrinters[m.output], cmd.OutOrStdout())
		},
	}
	m.flags(cmd, "text", "json")
	f := cmd.Flags()
	f.StringVar(&asked.Syntax, "syntax", "cel", "the language of the condition: cel or cqbs")
	f.StringVar(&asked.Subjects, "filter", "", "only these `SUBJECTS`, with wildcards")
	f.StringVar(&asked.Content, "content", "", "only messages whose content matches this CEL `EXPRESSION`")
	f.BoolVar(&messages, "messages", true, "print the messages, too; with false none are sent")
	complete(cmd, "syntax", "cel", "cqbs")
	return cmd
}

// follow opens a live query, and prints what comes until ctx ends.
func (b *brokers) follow(ctx context.Context, asked client.QueryOptions, show func(io.Writer, *client.QueryEvent) error, to io.Writer) error {
	b.nc.SetDisconnectErrHandler(func(_ *nats.Conn, err error) {
		if err != nil {
			b.note("disconnected: %v; connecting again", err)
		}
	})
	opening, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	q, err := client.Query(opening, b.nc, asked)
	if err != nil {
		return b.notFollowed(err)
	}
	defer q.Close()
	for e, err := range q.Events(ctx) {
		switch {
		case errors.Is(err, context.Canceled):
			return nil // Ctrl-C is a good end
		case err != nil:
			return b.notFollowed(err)
		case e.Kind == client.EventReady:
			b.note("matching subjects: %d; what changes follows, until Ctrl-C", len(q.Members()))
		case e.Kind == client.EventReopened:
			b.note("connected again to %s; messages that were published meanwhile did not come here", b.nc.ConnectedUrlRedacted())
		}
		if err := show(to, &e); err != nil {
			return fmt.Errorf("print what came: %w", err)
		}
	}
	return nil
}

// notFollowed explains why there is no live query, or no more.
func (b *brokers) notFollowed(err error) error {
	if refused, ok := errors.AsType[*client.QueryError](err); ok {
		return fmt.Errorf("attributes query: %w", refused)
	}
	return b.explain("attributes query", err)
}

// followPrinters print what a live query tells.
var followPrinters = map[string]func(io.Writer, *client.QueryEvent) error{
	"text": func(w io.Writer, e *client.QueryEvent) error {
		rest := ""
		switch e.Kind {
		case client.EventReady, client.EventReopened:
			return nil // a note says so
		case client.EventNew:
			rest = attributesText(e.Attributes)
		case client.EventMessage:
			rest = string(e.Data)
		}
		if rest != "" {
			rest = "  " + printable(rest)
		}
		_, err := fmt.Fprintf(w, "%-7s  %s%s\n", e.Kind, e.Subject, rest)
		return err
	},
	"json": func(w io.Writer, e *client.QueryEvent) error {
		line := struct {
			Event      string          `json:"event"`
			Subject    string          `json:"subject,omitempty"`
			Attributes json.RawMessage `json:"attributes,omitempty"`
			Initial    bool            `json:"initial,omitempty"`
			Reply      string          `json:"reply,omitempty"`
			Header     nats.Header     `json:"header,omitempty"`
			JSON       json.RawMessage `json:"json,omitempty"`
			Data       []byte          `json:"data,omitempty"`
		}{Event: e.Kind.String(), Subject: e.Subject, Attributes: e.Attributes, Initial: e.Initial, Reply: e.Reply, Header: e.Header}
		if json.Valid(e.Data) {
			line.JSON = e.Data
		} else {
			line.Data = e.Data
		}
		return json.NewEncoder(w).Encode(line)
	},
}
