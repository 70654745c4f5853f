package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/carillon-mq/carillon/broker/admin"
	"github.com/carillon-mq/carillon/broker/filter"
)

// viewFlags are the settings of a View.
type viewFlags struct {
	filters, values                        []string
	where, by, time, into                  string
	window, slide, session, lateness, idle ageFlag
	triggers, untils, alerts               []string
}

func (v *viewFlags) flags(f *pflag.FlagSet) {
	f.StringArrayVar(&v.values, "value", nil, "`NAME=FUNCTION`, such as 'mean=mean(json.celsius)': count() or, of a CEL expression, count, sum, mean, min, max, median, p99 …, distinct; repeat it")
	f.StringSliceVar(&v.filters, "filter", nil, "only these subjects, with wildcards; several with commas, or repeat it (default all)")
	f.StringVar(&v.where, "where", "", "`CONDITION` on the content of messages, for example 'json.celsius > -40.0' (default all messages)")
	f.StringVar(&v.by, "by", "", "`EXPRESSIONS` of the key, with commas: a result for each (default one result)")
	f.Var(&v.window, "window", "length of windows (default none: the result is of all messages)")
	f.Var(&v.slide, "slide", "a window begins each so long; needs --window (default windows follow each other)")
	f.Var(&v.session, "session", "a session ends after so long without a message of its key")
	f.StringVar(&v.time, "time", "", "`EXPRESSION` of the time of a message (default when it was stored)")
	f.Var(&v.lateness, "lateness", "how much earlier than the latest time of its shard that of a message may be (default 0s)")
	f.Var(&v.idle, "idle", "a shard without messages is passed over after this (default it is waited for)")
	f.StringVar(&v.into, "into", "", "`TOPIC` for the results of closed windows; with windows it is needed")
	f.StringArrayVar(&v.triggers, "trigger", nil, "`NAME=CONDITION` that raises an alert, such as 'hot=mean > 30.0'; repeat it")
	f.StringArrayVar(&v.untils, "until", nil, "`NAME=CONDITION` that clears the alert of that trigger (default that its own is false)")
	f.StringArrayVar(&v.alerts, "alerts", nil, "`TOPIC` for the alerts of all triggers, or NAME=TOPIC for those of one; repeat it")
}

// settings returns the settings of a View of a Topic.
func (v *viewFlags) settings(topic string) (s admin.ViewSettings, err error) {
	s = admin.ViewSettings{Topic: topic, By: v.by, Output: v.into}
	s.Filter.Subjects, s.Filter.Where = v.filters, v.where
	if v.where != "" {
		if _, err := filter.Compile(v.where); err != nil {
			return s, fmt.Errorf("--where: %w", err)
		}
	}
	if s.Values, err = named("--value", v.values); err != nil {
		return s, err
	}
	if len(s.Values) == 0 {
		return s, errors.New("give at least one --value, for example --value 'n=count()'")
	}
	if err := v.windows(&s); err != nil {
		return s, err
	}
	return s, v.alarms(&s)
}

// windows sets the windows.
func (v *viewFlags) windows(s *admin.ViewSettings) error {
	w := &admin.ViewWindow{Session: admin.Span(v.session), Time: v.time, Lateness: admin.Span(v.lateness), Idle: admin.Span(v.idle)}
	switch {
	case v.slide != 0 && v.window == 0:
		return errors.New("--slide needs --window, the length of a window")
	case v.window != 0 && v.session != 0:
		return errors.New("choose one of --window and --session")
	case v.slide != 0:
		w.Sliding = &admin.ViewSliding{Size: admin.Span(v.window), Every: admin.Span(v.slide)}
	case v.window != 0:
		w.Tumbling = admin.Span(v.window)
	}
	windowed := v.window != 0 || v.session != 0
	switch {
	case windowed && v.into == "":
		return errors.New("--into is needed: the topic for the results of closed windows")
	case !windowed && (v.into != "" || *w != (admin.ViewWindow{})):
		return errors.New("--into, --time, --lateness and --idle need --window or --session")
	case windowed:
		s.Window = w
	}
	return nil
}

// alarms sets the triggers.
func (v *viewFlags) alarms(s *admin.ViewSettings) error {
	whens, err := named("--trigger", v.triggers)
	if err != nil {
		return err
	}
	untils, err := named("--until", v.untils)
	if err != nil {
		return err
	}
	every, topics := "", map[string]string{}
	for _, text := range v.alerts {
		name, topic, one := strings.Cut(text, "=")
		if !one {
			every = text
			continue
		}
		topics[strings.TrimSpace(name)] = topic
	}
	for _, of := range []map[string]string{untils, topics} {
		for name := range of {
			if whens[name] == "" {
				return fmt.Errorf("there is no --trigger %q", name)
			}
		}
	}
	for _, text := range v.triggers { // in their order
		name, _, _ := strings.Cut(text, "=")
		name = strings.TrimSpace(name) // as named does
		t := admin.ViewTrigger{Output: every}
		t.Name, t.When, t.Until = name, whens[name], untils[name]
		if topics[name] != "" {
			t.Output = topics[name]
		}
		if t.Output == "" {
			return fmt.Errorf("--alerts is needed: the topic for the alerts of trigger %s", name)
		}
		s.Triggers = append(s.Triggers, t)
	}
	return nil
}

// named returns values of a flag that are written as NAME=VALUE.
func named(flag string, all []string) (map[string]string, error) {
	byName := map[string]string{}
	for _, text := range all {
		name, value, ok := strings.Cut(text, "=")
		if name = strings.TrimSpace(name); !ok || name == "" || value == "" {
			return nil, fmt.Errorf("%s %q: write NAME=…", flag, text)
		}
		if byName[name] != "" {
			return nil, fmt.Errorf("%s: %s is given twice", flag, name)
		}
		byName[name] = value
	}
	return byName, nil
}

func newViewCreateCommand() *cobra.Command {
	cmd := viewWriter("create", "Create a View", "create view ", "made", func(asked admin.CreateViewRequest) (string, admin.CreateViewRequest) {
		return admin.ViewCreateSubject, asked
	})
	cmd.Aliases = []string{"add"}
	cmd.Long = `Create a View: the brokers compute --value of the messages of a Topic, by key and by window, and keep it up to
date. It begins with the oldest message. It takes the right to subscribe to all that it reads, and to publish all that
it writes, which it does on behalf of the user who creates it.

It may be repeated: where that View is already, with the same settings, nothing is changed.`
	cmd.Example = `  carillon view create per-region orders --by json.region --value 'n=count()' --value 'total=sum(json.total)'
  carillon view create means readings --by attributes.room --window 1m --lateness 10s --idle 30s --value 'mean=mean(json.celsius)' --into room-means
  carillon view create hot readings --by attributes.room --window 1m --value 'mean=mean(json.celsius)' --into room-means \
    --trigger 'hot=mean > 30.0' --until 'hot=mean < 28.0' --alerts alerts`
	return cmd
}

func newViewUpdateCommand() *cobra.Command {
	var generation, revision int64
	cmd := viewWriter("update", "Replace the settings of a View", "change view ", "changed", func(asked admin.CreateViewRequest) (string, admin.CreateViewRequest) {
		asked.Generation, asked.Revision = generation, revision
		return admin.ViewUpdateSubject, asked
	})
	cmd.Long = `Replace the settings of a View, all of them: what is left out is as with carillon view create.

Other triggers, or another --idle, change nothing of the results. After any other change the View computes its results
anew, of the messages that the Topic still has. What a manifest declares is changed by kubectl.`
	cmd.Example = `  carillon view update per-region orders --by json.region --value 'n=count()' --where 'json.total > 100.0'`
	cmd.Flags().Int64Var(&generation, "generation", 0, "only if the View has this generation, which carillon view show prints (default any)")
	cmd.Flags().Int64Var(&revision, "revision", 0, "only if the View is at this revision, which carillon view show prints: it notices also one that was deleted and made again (default any)")
	return cmd
}

// viewWriter returns a command that writes a View.
func viewWriter(use, short, what, done string, request func(admin.CreateViewRequest) (string, admin.CreateViewRequest)) *cobra.Command {
	var (
		m manageFlags
		v viewFlags
	)
	cmd := &cobra.Command{
		Use:   use + " VIEW TOPIC",
		Short: short,
		Args:  takes(2, 2, "the names of a view and of the topic that it reads"),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(args) == 0 {
				return m.completeViews(cmd, args, begun)
			}
			return m.completeNames(1)(cmd, args[1:], begun)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			settings, err := v.settings(args[1])
			if err != nil {
				return usageError{err}
			}
			ctx, b, end, err := m.connectAsking(cmd)
			if err != nil {
				return err
			}
			defer end()
			subject, asked := request(admin.CreateViewRequest{View: args[0], ViewSettings: settings})
			is, err := b.askView(ctx, subject, what+args[0], asked)
			if err != nil {
				return err
			}
			if m.output == "json" {
				return printJSON(cmd.OutOrStdout(), is)
			}
			more := ""
			if is.Spec.Output != "" {
				more = "; results go into topic " + is.Spec.Output
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "view %s of topic %s is %s%s\n", is.Name, is.Spec.Topic, done, more)
			return err
		},
	}
	m.flags(cmd, "text", "json")
	v.flags(cmd.Flags())
	return cmd
}

func newViewDeleteCommand() *cobra.Command {
	var (
		m   manageFlags
		yes bool
	)
	cmd := &cobra.Command{
		Use:     "delete VIEW",
		Aliases: []string{"rm"},
		Short:   "Delete a View",
		Long: `Delete a View, after asking. Windows that are open have no result. What it has written stays. What a manifest
declares is deleted by kubectl; what a manifest left behind is deleted here.`,
		Example:           `  carillon view delete hot-rooms`,
		Args:              takes(1, 1, "the name of a view"),
		ValidArgsFunction: m.completeViews,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, b, end, err := m.connectAsking(cmd)
			if err != nil {
				return err
			}
			defer end()
			what := "delete view " + args[0]
			is, err := b.askView(ctx, admin.ViewInfoSubject, what, admin.ViewRequest{View: args[0]})
			if err != nil {
				return err
			}
			if err := declaredElsewhere("view "+args[0], "views", is.Owner); err != nil {
				return err
			}
			if err := confirm(cmd, yes, fmt.Sprintf("Delete view %s of topic %s?", is.Name, is.Spec.Topic), "nothing was deleted"); err != nil {
				return err
			}
			if _, err := b.askView(ctx, admin.ViewDeleteSubject, what, admin.ViewRequest{View: args[0], Revision: is.Revision}); err != nil {
				return err
			}
			return m.deleted(cmd, "view "+args[0])
		},
	}
	m.flags(cmd, "text", "json")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "don't ask")
	return cmd
}
