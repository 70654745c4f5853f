package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-mq/carillon/broker/admin"
	"github.com/carillon-mq/carillon/broker/clock"
)

// votesTime is how long a confirmation may take to reach all brokers, which repeat their votes
// twice a second.
const votesTime = 3 * time.Second

// clockView is a broker's clock, or why it is unknown.
type clockView struct {
	admin.Broker
	Clock *admin.BrokerClock `json:"clock,omitempty"`
	Error string             `json:"error,omitempty"`

	asked time.Time // by this machine's clock, when the broker answered
	err   error
}

func newBrokersClocksCommand() *cobra.Command {
	var m manageFlags
	cmd := &cobra.Command{
		Use:     "clocks",
		Aliases: []string{"clock"},
		Short:   "Show the clocks of brokers, and whether the time is in doubt",
		Long: `Show the clocks of brokers. They go by the median of their clocks, and delete nothing by its age while
that time is in doubt. CLOCK is what a broker's machine says, AHEAD how far that is ahead of the time that the
broker goes by, JUMPS how often it jumped since the broker started. VOTE is sure, or else how the broker
takes part: held (its clock jumped, and it goes on as if it had not), late or early (its clock is
implausible since it started). SURE is how many brokers agree and are sure, of how many it knows. IN DOUBT is the reason.

Correct clocks that are wrong. Of those that are right, say so with: carillon brokers confirm-clock.`,
		Example: `  carillon brokers clocks
  carillon brokers clocks --output json | jq '.brokers[].clock.doubt'`,
		Args:              takes(0, 0, "no arguments"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b, err := m.connect(cmd)
			if err != nil {
				return err
			}
			defer b.close()
			members, err := b.members(cmd.Context())
			if err != nil {
				return b.explain("list brokers", err)
			}
			return m.showClocks(cmd, b, b.clocks(cmd.Context(), members))
		},
	}
	m.flags(cmd, "table", "json")
	return cmd
}

func newBrokersConfirmClockCommand() *cobra.Command {
	var (
		m               manageFlags
		all, yes, force bool
	)
	cmd := &cobra.Command{
		Use:   "confirm-clock BROKER...",
		Short: "Say that the clocks of brokers are right",
		Long: `Say that the clocks of brokers are right, after asking. A broker whose clock jumped goes on as if it had
not, and while more than half of them do so the time is in doubt: nothing is deleted by its age. When the clocks
are right, this ends the doubt at once; otherwise it ends when they have run evenly for a day.

Confirm all brokers within ten minutes, best with --all: half of them or fewer change nothing, and one that is
left out doubts the time for a day. Retention deletes records by the time that follows, so a clock that is further than a minute
from this machine's is refused, unless --force says that this machine's is wrong.`,
		Example: `  carillon brokers confirm-clock --all
  carillon brokers confirm-clock main-0 main-2 --yes`,
		Args: func(cmd *cobra.Command, args []string) error {
			if all == (len(args) > 0) {
				return usageError{fmt.Errorf("%s takes names or ids of brokers, or --all (see %[1]s --help)", cmd.CommandPath())}
			}
			return nil
		},
		ValidArgsFunction: m.completeBrokers(func(m *admin.Member) bool { return !m.Away }),
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := m.connect(cmd)
			if err != nil {
				return err
			}
			defer b.close()
			members, err := b.members(cmd.Context())
			if err != nil {
				return b.explain("list brokers", err)
			}
			var these []admin.Member
			for _, name := range args {
				member, err := b.member(cmd.Context(), name)
				if err != nil {
					return err
				}
				these = append(these, *member)
			}
			for _, member := range members {
				if all && !member.Away {
					these = append(these, member)
				}
			}
			if err := b.confirmClocks(cmd, b.clocks(cmd.Context(), these), yes, force); err != nil {
				return err
			}
			return m.showClocks(cmd, b, b.settledClocks(cmd.Context(), members))
		},
	}
	m.flags(cmd, "table", "json")
	cmd.Flags().BoolVar(&all, "all", false, "confirm the clocks of all brokers that are there")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "don't ask")
	cmd.Flags().BoolVar(&force, "force", false, "also confirm clocks that are further than a minute from this machine's")
	return cmd
}

// clocks asks these brokers for their clocks, concurrently, since any may not answer.
func (b *brokers) clocks(ctx context.Context, members []admin.Member) []clockView {
	views := make([]clockView, len(members))
	var asking sync.WaitGroup
	for i, member := range members {
		views[i].Broker = member.Broker
		if member.Away {
			views[i].err = errors.New("it is away")
			views[i].Error = views[i].err.Error()
			continue
		}
		asking.Go(func() {
			if v := &views[i]; b.askClock(ctx, admin.BrokerClockSubject, nil, v) != nil {
				v.err = b.explain("the clock of broker "+brokerText(v.Broker), v.err)
				v.Error = v.err.Error()
			}
		})
	}
	asking.Wait()
	return views
}

// askClock reads or confirms the clock of a view's broker, and stores the answer in the view. It
// returns the view's error.
func (b *brokers) askClock(ctx context.Context, subject string, request any, v *clockView) error {
	var info admin.ClockInfo
	v.err = b.ask(ctx, subject+v.ID, request, &info)
	if v.err == nil {
		v.err = asError(info.Error)
	}
	var refusal *admin.Error
	switch {
	case errors.As(v.err, &refusal) && refusal.Code == admin.BadRequest:
		v.err = errors.New("its version shows no clock")
	case v.err == nil && info.Clock == nil:
		v.err = errors.New("the answer has no clock")
	}
	v.asked, v.Clock = time.Now(), info.Clock
	return v.err
}

// settledClocks returns all clocks once no broker doubts the time, or after votesTime.
func (b *brokers) settledClocks(ctx context.Context, members []admin.Member) []clockView {
	tick := time.NewTicker(votesTime / 20)
	defer tick.Stop()
	for deadline := time.Now().Add(votesTime); ; {
		views, doubt := b.clocks(ctx, members), false
		for _, v := range views {
			doubt = doubt || v.Clock != nil && v.Clock.Doubt != clock.None
		}
		if !doubt || time.Now().After(deadline) {
			return views
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return views
		}
	}
}

// off returns how far a broker's clock is ahead of this machine's.
func (v *clockView) off() time.Duration { return v.Clock.Clock.Sub(v.asked) }

// confirmClocks confirms all of these clocks, or none if one can't be confirmed. A broker that
// fails meanwhile is an exception.
func (b *brokers) confirmClocks(cmd *cobra.Command, views []clockView, yes, force bool) error {
	var wrong []error
	question := "Take these clocks for right? Records are deleted by their age accordingly.\n"
	for _, v := range views {
		switch {
		case v.err != nil:
			wrong = append(wrong, v.err)
		case v.off().Abs() > clock.ConfirmWithin && !force:
			wrong = append(wrong, fmt.Errorf("the clock of broker %s says %s, and this machine's %s: correct the one that is wrong (if that is this machine's, confirm with --force)",
				brokerText(v.Broker), clockText(v.Clock.Clock), clockText(v.asked)))
		default:
			question += fmt.Sprintf("  %s  %s\n", clockText(v.Clock.Clock), brokerText(v.Broker))
		}
	}
	if len(wrong) > 0 {
		return errors.Join(wrong...)
	}
	if err := confirm(cmd, yes, question, "no clock was confirmed"); err != nil {
		return err
	}
	for _, v := range views {
		request := admin.ConfirmClockRequest{Time: time.Now()}
		if force {
			request.Time = request.Time.Add(v.off())
		}
		if err := b.askClock(cmd.Context(), admin.BrokerConfirmClockSubject, request, &v); err != nil {
			wrong = append(wrong, b.explain("confirm the clock of broker "+brokerText(v.Broker), err))
		} else {
			b.note("the clock of broker %s is confirmed", brokerText(v.Broker))
		}
	}
	return errors.Join(wrong...)
}

// showClocks prints clocks, with the doubts and how to end them.
func (m *manageFlags) showClocks(cmd *cobra.Command, b *brokers, views []clockView) error {
	if m.output == "json" {
		return printJSON(cmd.OutOrStdout(), struct {
			Brokers []clockView `json:"brokers"`
		}{views})
	}
	if err := printClocks(cmd.OutOrStdout(), views); err != nil {
		return err
	}
	for _, note := range clockNotes(views) {
		b.note("%s", note)
	}
	return nil
}

func printClocks(w io.Writer, views []clockView) error {
	rows := [][]string{{"NAME", "CLOCK", "AHEAD", "VOTE", "JUMPS", "SURE", "IN DOUBT"}}
	for _, v := range views {
		row := []string{cmp.Or(v.Name, v.ID), "-", "-", "-", "-", "-", "-"}
		if is := v.Clock; is != nil {
			row = []string{row[0], clockText(is.Clock), aheadText(is.Away), is.Vote, strconv.FormatUint(is.Jumps, 10),
				fmt.Sprintf("%d/%d", is.Sure, is.Votes), cmp.Or(string(is.Doubt), "-")}
		}
		rows = append(rows, row)
	}
	return printTable(w, rows)
}

// clockNotes returns the notes below the table, each once.
func clockNotes(views []clockView) (notes []string) {
	var doubts []string
	known := map[string]bool{}
	for _, v := range views {
		is := v.Clock
		switch {
		case is == nil:
			notes = append(notes, fmt.Sprintf("broker %s: %s", cmp.Or(v.Name, v.ID), v.Error))
			continue
		case v.off().Abs() > clock.ConfirmWithin:
			notes = append(notes, fmt.Sprintf("the clock of broker %s is %s this machine's, which says %s", brokerText(v.Broker), offText(v.off()), clockText(v.asked)))
		}
		if is.Doubt != clock.None && !known[is.Why] {
			known[is.Why] = true
			doubts = append(doubts, fmt.Sprintf("the time is in doubt, and nothing is deleted by its age: %s", is.Why))
		}
	}
	if len(doubts) > 0 {
		doubts = append(doubts, "correct the clocks that are wrong; when all are right: carillon brokers confirm-clock --all")
	}
	return append(notes, doubts...)
}

// clockText returns a time to the millisecond.
func clockText(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// aheadText returns how far a clock is ahead: "0s", "-1.2s", "+365d".
func aheadText(d time.Duration) string {
	text := d.Round(10 * time.Millisecond).String()
	if d.Abs() >= 48*time.Hour {
		text = fmt.Sprintf("%.0fd", d.Hours()/24)
	}
	if d > 0 && text != "0s" {
		text = "+" + text
	}
	return text
}

// offText returns the same in words.
func offText(d time.Duration) string {
	if d < 0 {
		return strings.TrimPrefix(aheadText(d), "-") + " behind"
	}
	return strings.TrimPrefix(aheadText(d), "+") + " ahead of"
}
