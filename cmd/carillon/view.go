package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-mq/carillon/broker/admin"
	"github.com/carillon-mq/carillon/broker/coordination"
)

func newViewCommand() *cobra.Command {
	cmd := group("view", "List, show, create, update and delete Views, and get their values", newViewListCommand(), newViewShowCommand(), newViewGetCommand(),
		newViewCreateCommand(), newViewUpdateCommand(), newViewDeleteCommand())
	cmd.Long = `List, show, create, update and delete Views: aggregates of a Topic's messages, by key and by window, that the
brokers keep up to date. Each closed window is a message of another Topic, and triggers make alerts of results.

To compute results once, of what is stored, there is carillon query --aggregate.`
	cmd.Aliases = []string{"views"}
	return cmd
}

func newViewListCommand() *cobra.Command {
	var (
		m        manageFlags
		orphaned bool
	)
	cmd := &cobra.Command{
		Use:     "list [TOPIC]",
		Aliases: []string{"ls"},
		Short:   "List Views, of one Topic or of all",
		Example: `  carillon view list readings
  carillon view ls --output json | jq -r '.views[] | select(.spec.output) | .name'`,
		Args:              takes(0, 1, "at most the name of a topic"),
		ValidArgsFunction: m.completeNames(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, b, end, err := m.connectAsking(cmd)
			if err != nil {
				return err
			}
			defer end()
			request := admin.ViewListRequest{}
			if len(args) == 1 {
				request.Topic = args[0]
			}
			views, err := b.views(ctx, request)
			if err != nil {
				return b.explain("list views", err)
			}
			if orphaned {
				views = slices.DeleteFunc(views, func(v admin.View) bool { return v.Owner.Orphaned == nil })
			}
			if m.output == "json" {
				return printJSON(cmd.OutOrStdout(), struct {
					Views []admin.View `json:"views"`
				}{views})
			}
			if len(views) == 0 {
				b.note("there are no views (see: carillon view create --help)")
				return nil
			}
			return printViews(cmd.OutOrStdout(), views)
		},
	}
	m.flags(cmd, "table", "json")
	cmd.Flags().BoolVar(&orphaned, "orphaned", false, "only those whose manifest is gone")
	return cmd
}

func newViewShowCommand() *cobra.Command {
	var m manageFlags
	cmd := &cobra.Command{
		Use:     "show VIEW",
		Aliases: []string{"info"},
		Short:   "Show one View: what it computes, where its results go, and its first present values",
		Long: fmt.Sprintf(`Show one View: what it computes, where its results go, and whether it is served. Below are its
present values, of the first %d keys and at most %d values, and how many more there are; carillon
view get prints all. If they can't be had, for example because the View is not served yet, it says
why, and so it does while results are not up to date.`, maxPresentKeys, maxPresentValues),
		Example: `  carillon view show hot-rooms
  carillon view show hot-rooms --output json | jq .present.values`,
		Args:              takes(1, 1, "the name of a view"),
		ValidArgsFunction: m.completeViews,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, b, end, err := m.connectAsking(cmd)
			if err != nil {
				return err
			}
			defer end()
			v, err := b.askView(ctx, admin.ViewInfoSubject, "view "+args[0], admin.ViewRequest{View: args[0]})
			if err != nil {
				return err
			}
			present, err := b.present(ctx, args[0])
			if err != nil {
				return b.explain("view "+args[0], err)
			}
			if m.output == "json" {
				return printJSON(cmd.OutOrStdout(), presentView{v, present})
			}
			if present.Why != "" { // the trouble may be the reason
				present.Trouble = v.Trouble
			}
			if err := printView(cmd.OutOrStdout(), v); err != nil {
				return err
			}
			return printPresent(cmd.OutOrStdout(), args[0], &present)
		},
	}
	m.flags(cmd, "table", "json")
	return cmd
}

// views returns all pages of a list.
func (b *brokers) views(ctx context.Context, request admin.ViewListRequest) ([]admin.View, error) {
	views := []admin.View{}
	for {
		var list admin.ViewList
		if err := b.ask(ctx, admin.ViewListSubject, request, &list); err != nil {
			return nil, err
		}
		if list.Error != nil {
			return nil, list.Error
		}
		views = append(views, list.Views...)
		if request.After = list.Next; list.Next == "" {
			return views, nil
		}
	}
}

// askView makes a request about one View.
func (b *brokers) askView(ctx context.Context, subject, what string, request any) (*admin.View, error) {
	var info admin.ViewInfo
	err := b.ask(ctx, subject, request, &info)
	if err == nil {
		err = asError(info.Error)
	}
	return info.View, b.explain(what, err)
}

// completeViews completes the name of a View.
func (m *manageFlags) completeViews(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return m.completeByAsking(cmd, func(ctx context.Context, b *brokers) (names []cobra.Completion) {
		views, _ := b.views(ctx, admin.ViewListRequest{})
		for i := range views {
			if strings.HasPrefix(views[i].Name, begun) {
				names = append(names, views[i].Name)
			}
		}
		return names
	})
}

func printViews(w io.Writer, views []admin.View) error {
	rows := [][]string{{"VIEW", "TOPIC", "BY", "WINDOW", "VALUES", "INTO", "TRIGGERS", "OWNER", "AGE", "STATUS"}}
	for i := range views {
		v := &views[i]
		s := &v.Spec
		var triggers []string
		for _, t := range s.Triggers {
			triggers = append(triggers, t.Name)
		}
		rows = append(rows, []string{
			v.Name, s.Topic, orDash(printable(s.By)), windowText(s.Window), few(slices.Sorted(maps.Keys(s.Values)), 3), orDash(s.Output),
			few(triggers, 2), ownerText(&v.Owner), agoText(v.Created), servedStatus(&v.Served, v.Reason, &v.Owner),
		})
	}
	return printTable(w, rows)
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// windowText returns which windows there are.
func windowText(w *admin.ViewWindow) string {
	switch {
	case w == nil:
		return "-"
	case w.Sliding != nil:
		return fmt.Sprintf("%s every %s", spanText(w.Sliding.Size), spanText(w.Sliding.Every))
	case w.Session != 0:
		return "sessions, " + spanText(w.Session)
	}
	return spanText(w.Tumbling)
}

func spanText(s admin.Span) string { return durationText(time.Duration(s)) }

func printView(w io.Writer, v *admin.View) error {
	s := &v.Spec
	rows := [][]string{{"View", v.Name}, {"Topic", s.Topic}, {"Owner", v.Owner.Coordination().String()}}
	add := func(name, value string) { rows = append(rows, []string{name, printable(value)}) }
	if v.Owner.Orphaned != nil {
		add("Orphaned", "since "+timeText(*v.Owner.Orphaned))
	}
	if v.User != "" {
		add("On behalf of", "user "+v.User)
	}
	add("Generation", strconv.FormatInt(v.Generation, 10))
	add("Revision", strconv.FormatInt(v.Revision, 10))
	add("Created", timeText(v.Created))
	if len(s.Filter.Subjects) > 0 {
		add("Filter", strings.Join(s.Filter.Subjects, ", "))
	}
	if s.Filter.Where != "" {
		add("Where", s.Filter.Where)
	}
	if s.By != "" {
		add("By", s.By)
	}
	if s.Window == nil {
		add("Window", "none: present values of all messages")
	} else {
		add("Window", windowText(s.Window))
		add("Time", orWhenStored(s.Window.Time))
		add("Lateness", spanText(s.Window.Lateness))
		if s.Window.Idle > 0 {
			add("Idle", "a shard without messages is passed over after "+spanText(s.Window.Idle))
		}
		add("Results go into", "topic "+s.Output)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Values)) {
		add("Value "+name, s.Values[name])
	}
	for _, t := range s.Triggers {
		until := "it is false"
		if t.Until != "" {
			until = t.Until
		}
		add("Trigger "+t.Name, fmt.Sprintf("%s, until %s; alerts go into topic %s", t.When, until, t.Output))
	}
	if v.Owner.Kind == coordination.ManifestOwner {
		add("When its manifest goes", string(v.DeletionPolicy))
	}
	add("Status", servedStatus(&v.Served, v.Reason, &v.Owner))
	if v.Why != "" {
		add("Why", v.Why)
	}
	return printTable(w, rows)
}

func orWhenStored(time string) string {
	if time == "" {
		return "when a message was stored"
	}
	return time
}
