package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-mq/carillon/broker/admin"
	"github.com/carillon-mq/carillon/broker/log"
)

// asideView is the pieces that one broker set aside, or why they are unknown.
type asideView struct {
	admin.Broker
	Pieces []admin.Piece `json:"pieces"`
	Error  string        `json:"error,omitempty"`

	err error
}

func newBrokersSetAsideCommand() *cobra.Command {
	cmd := group("set-aside", "List and delete what brokers set aside", newSetAsideListCommand(), newSetAsideDeleteCommand())
	cmd.Long = `List and delete what brokers set aside on their volumes instead of deleting it: logs of Topics that the
cluster doesn't know, damaged copies and segments, records that a leader lacks, torn ends of logs. No
broker reads any of it again. It stays until somebody deletes it here.`
	return cmd
}

func newSetAsideListCommand() *cobra.Command {
	var m manageFlags
	cmd := &cobra.Command{
		Use:     "list [BROKER...]",
		Aliases: []string{"ls"},
		Short:   "List what brokers set aside: of which Topics, how much, since when, and why",
		Long: `List what brokers set aside: all brokers, or those that are named. TOPIC is the Topic's name, with "gone"
if the cluster doesn't know the Topic any more, or a dash if nobody knows its name; the name of a piece
begins with the Topic's id. Below each piece is what it has, and why it was set aside. Delete pieces
with: carillon brokers set-aside delete.`,
		Example: `  carillon brokers set-aside list
  carillon brokers set-aside list main-0 --output json | jq '.brokers[].pieces[].name'`,
		Args:              anyBrokers,
		ValidArgsFunction: m.completeEachBroker,
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := m.connect(cmd)
			if err != nil {
				return err
			}
			defer b.close()
			members, err := b.membersNamed(cmd.Context(), args)
			if err != nil {
				return err
			}
			views := b.setAside(cmd.Context(), members)
			if m.output == "json" {
				err = printJSON(cmd.OutOrStdout(), struct {
					Brokers []asideView `json:"brokers"`
				}{views})
			} else {
				err = b.printSetAside(cmd.OutOrStdout(), views)
			}
			for _, v := range views {
				if !v.Away {
					err = errors.Join(err, v.err)
				}
			}
			return err
		},
	}
	m.flags(cmd, "table", "json")
	return cmd
}

func newSetAsideDeleteCommand() *cobra.Command {
	var (
		m        manageFlags
		all, yes bool
	)
	cmd := &cobra.Command{
		Use:     "delete BROKER PIECE...",
		Aliases: []string{"rm"},
		Short:   "Delete pieces that a broker set aside",
		Long: `Delete pieces that a broker set aside, after asking. They may be the only copies of records: nothing
brings them back. A piece that changed since it was shown is not deleted.`,
		Example: `  carillon brokers set-aside delete main-0 5f0c3a1b9d2e4f60718293a4b5c6d7e8-0.1
  carillon brokers set-aside delete main-0 --all`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 || all == (len(args) > 1) || slices.Contains(args, "") {
				return usageError{fmt.Errorf("%s takes a broker, and names of pieces or --all (see %[1]s --help)", cmd.CommandPath())}
			}
			return nil
		},
		ValidArgsFunction: m.completePieces,
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := m.connect(cmd)
			if err != nil {
				return err
			}
			defer b.close()
			member, err := b.member(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			v := b.setAside(cmd.Context(), []admin.Member{*member})[0]
			if v.err != nil {
				return v.err
			}
			these, err := v.named(args[1:], all)
			if err != nil {
				return err
			}
			return m.deletePieces(cmd, b, &v, these, yes)
		},
	}
	m.flags(cmd, "text", "json")
	cmd.Flags().BoolVar(&all, "all", false, "delete all that the broker set aside")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "don't ask")
	return cmd
}

// anyBrokers accepts any number of names or ids of brokers.
func anyBrokers(cmd *cobra.Command, args []string) error {
	if slices.Contains(args, "") {
		return usageError{fmt.Errorf("%s takes names or ids of brokers, and one is empty (see %[1]s --help)", cmd.CommandPath())}
	}
	return nil
}

// membersNamed returns the brokers of these names or ids, or all brokers if there are none.
func (b *brokers) membersNamed(ctx context.Context, names []string) (members []admin.Member, err error) {
	if len(names) == 0 {
		members, err = b.members(ctx)
		return members, b.explain("list brokers", err)
	}
	for _, name := range names {
		member, err := b.member(ctx, name)
		if err != nil {
			return nil, err
		}
		members = append(members, *member)
	}
	return members, nil
}

// setAside lists what these brokers set aside. It asks them concurrently, since any may not answer.
func (b *brokers) setAside(ctx context.Context, members []admin.Member) []asideView {
	views := make([]asideView, len(members))
	var asking sync.WaitGroup
	for i, member := range members {
		v := &views[i]
		v.Broker, v.Pieces = member.Broker, []admin.Piece{}
		if member.Away {
			v.Error = "it is away"
			v.err = fmt.Errorf("broker %s is away", brokerText(v.Broker))
			continue
		}
		asking.Go(func() {
			if v.err = b.askSetAside(ctx, v); v.err != nil {
				v.err = b.explain("what broker "+brokerText(v.Broker)+" set aside", v.err)
				v.Error = v.err.Error()
			}
			v.nameTopics()
		})
	}
	asking.Wait()
	return views
}

// askSetAside adds all pages of a broker's list to a view.
func (b *brokers) askSetAside(ctx context.Context, v *asideView) error {
	for after := ""; ; {
		var list admin.SetAsideList
		if err := b.askVolume(ctx, admin.BrokerSetAsideSubject+v.ID, admin.ListRequest{After: after}, &list, func() error { return asError(list.Error) }); err != nil {
			return err
		}
		v.Pieces = append(v.Pieces, list.Pieces...)
		if after = list.Next; after == "" {
			return nil
		}
	}
}

// askVolume sends one request. refusal returns the error in the answer.
func (b *brokers) askVolume(ctx context.Context, subject string, request, answer any, refusal func() error) error {
	err := b.ask(ctx, subject, request, answer)
	if err == nil {
		err = refusal()
	}
	var refused *admin.Error
	if errors.As(err, &refused) && refused.Code == admin.BadRequest {
		return errors.New("its version, or that of the broker that was asked, can't list or delete it")
	}
	return err
}

// nameTopics sets the Topic names of logs of cursors, which lack them, from other logs of the
// Topic.
func (v *asideView) nameTopics() {
	names := map[string]string{}
	for _, p := range v.Pieces {
		names[p.TopicID] = cmp.Or(names[p.TopicID], p.Topic)
	}
	for i := range v.Pieces {
		v.Pieces[i].Topic = names[v.Pieces[i].TopicID]
	}
}

// named returns the pieces of these names, or all of them.
func (v *asideView) named(names []string, all bool) (these []admin.Piece, err error) {
	if all {
		return v.Pieces, nil
	}
	var missing []error
	for _, name := range names {
		if at := slices.IndexFunc(v.Pieces, func(p admin.Piece) bool { return p.Name == name }); at >= 0 {
			these = append(these, v.Pieces[at])
		} else {
			missing = append(missing, fmt.Errorf("broker %s set nothing aside as %q (see: carillon brokers set-aside list)", brokerText(v.Broker), name))
		}
	}
	return these, errors.Join(missing...)
}

// deletePieces deletes pieces of one broker, after asking.
func (m *manageFlags) deletePieces(cmd *cobra.Command, b *brokers, v *asideView, these []admin.Piece, yes bool) error {
	if len(these) == 0 {
		b.note("broker %s has set nothing aside", brokerText(v.Broker))
		return nil
	}
	question := fmt.Sprintf("Delete this from broker %s for good?\n", brokerText(v.Broker))
	for _, p := range these {
		question += fmt.Sprintf("  %s  %s  %s\n    %s\n", p.Name, topicText(&p), bytesText(uint64(p.Bytes)), pieceText(&p))
	}
	if err := confirm(cmd, yes, question, "nothing was deleted"); err != nil {
		return err
	}
	var failed []error
	for _, p := range these {
		var done admin.SetAsideDeleted
		request := admin.DeleteSetAsideRequest{Name: p.Name, Since: p.Since}
		err := b.askVolume(cmd.Context(), admin.BrokerDeleteSetAsideSubject+v.ID, request, &done, func() error { return asError(done.Error) })
		switch {
		case err != nil:
			err = b.explain("delete "+p.Name, err)
		case !done.Deleted:
			b.note("somebody else has deleted %s", p.Name)
		default:
			err = m.deleted(cmd, p.Name)
		}
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// printSetAside prints a table of the pieces of each broker.
func (b *brokers) printSetAside(w io.Writer, views []asideView) error {
	found := false
	for _, v := range views {
		if v.Away {
			b.note("broker %s: what it set aside is not known", brokerText(v.Broker))
		}
		if len(v.Pieces) == 0 {
			continue
		}
		sum := int64(0)
		rows := [][]string{{"NAME", "TOPIC", "SIZE", "AGE"}}
		for _, p := range v.Pieces {
			sum += p.Bytes
			rows = append(rows, []string{p.Name, topicText(&p), bytesText(uint64(p.Bytes)), ageText(p.Age)})
		}
		if found {
			fmt.Fprintln(w)
		}
		found = true
		fmt.Fprintf(w, "Set aside on broker %s: %s, %s\n", brokerText(v.Broker), counted(len(v.Pieces), "piece"), bytesText(uint64(sum)))
		var table strings.Builder
		if err := printTable(&table, rows); err != nil {
			return err
		}
		// The reason is too long for a column.
		for i, line := range slices.Collect(strings.Lines(table.String())) {
			if i > 0 {
				line += "  " + pieceText(&v.Pieces[i-1]) + "\n"
			}
			if _, err := io.WriteString(w, line); err != nil {
				return err
			}
		}
	}
	if !found && !slices.ContainsFunc(views, func(v asideView) bool { return v.err != nil }) {
		b.note("nothing is set aside")
	}
	return nil
}

// topicText returns the name of the Topic of a piece.
func topicText(p *admin.Piece) string {
	switch {
	case p.Topic == "":
		return "-"
	case !p.Exists:
		return p.Topic + " (gone)"
	}
	return p.Topic
}

// pieceText describes what a piece contains, and why it was set aside.
func pieceText(p *admin.Piece) string {
	what := ""
	switch p.Kind {
	case log.PieceTorn:
		return "torn ends of its log: writes that a crash cut short"
	case log.PieceLog:
		what = "a whole log"
	default:
		what = "a part of a log"
	}
	if p.Cursors {
		what += " of cursors"
	}
	if p.From > 0 {
		what += fmt.Sprintf(" from %d", p.From)
	}
	if p.Next > p.From && p.From > 0 {
		what += fmt.Sprintf(" to %d", p.Next-1)
	}
	return strings.TrimSuffix(what+": "+p.Reason, ": ")
}

// ageText returns an age by a broker's clock as text; 0: unknown.
func ageText(d time.Duration) string {
	if d == 0 {
		return "-"
	}
	return agoText(time.Now().Add(-d))
}

// completeEachBroker completes names of present brokers.
func (m *manageFlags) completeEachBroker(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	there := m.completeBrokers(func(b *admin.Member) bool {
		return !b.Away && !slices.Contains(args, b.Name) && !slices.Contains(args, b.ID)
	})
	return there(cmd, nil, typed)
}

// completePieces completes the name of a broker, and then those of its pieces.
func (m *manageFlags) completePieces(cmd *cobra.Command, args []string, typed string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
	if len(args) == 0 {
		return m.completeEachBroker(cmd, args, typed)
	}
	return m.completeByAsking(cmd, func(ctx context.Context, b *brokers) []cobra.Completion {
		member, err := b.member(ctx, args[0])
		if err != nil {
			return nil
		}
		for _, p := range b.setAside(ctx, []admin.Member{*member})[0].Pieces {
			if !slices.Contains(args[1:], p.Name) {
				names = append(names, p.Name)
			}
		}
		return names
	})
}
