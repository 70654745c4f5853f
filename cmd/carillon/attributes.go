package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carillon-mq/carillon/broker/admin"
	"github.com/carillon-mq/carillon/broker/attribute"
)

func newAttributesCommand() *cobra.Command {
	cmd := group("attributes", "List, show, set, delete and query the attributes of subjects", newAttributesListCommand(), newAttributesGetCommand(),
		newAttributesSetCommand(), newAttributesDeleteCommand(), newAttributesQueryCommand())
	cmd.Long = `List, show, set, delete and query the attributes of subjects: names with values, which say what the messages
on a subject are about.

Setting and deleting takes the right to publish on the subject, seeing them that to subscribe to it.`
	cmd.Aliases = []string{"attribute", "attr"}
	return cmd
}

func newAttributesListCommand() *cobra.Command {
	var m manageFlags
	cmd := &cobra.Command{
		Use:     "list [SUBJECTS]",
		Aliases: []string{"ls"},
		Short:   "List subjects with their attributes",
		Long: `List subjects with their attributes, in their order. A pattern, such as 'sensors.>', lists those that
match it. BOUND are those whose attributes go 10 seconds after the connection of their publisher.`,
		Example: `  carillon attributes list
  carillon attributes list 'sensors.>' --output json | jq '.subjects[].attributes.room'`,
		Args:              takesSubjects(0, 1, "a pattern of subjects, or nothing"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := m.connect(cmd)
			if err != nil {
				return err
			}
			defer b.close()
			request := admin.AttributesListRequest{}
			if len(args) == 1 {
				request.Subjects = args[0]
			}
			subjects, err := b.attributesOf(cmd.Context(), request)
			if err != nil {
				return b.explain("list attributes", err)
			}
			if m.output == "json" {
				return printJSON(cmd.OutOrStdout(), struct {
					Subjects []admin.SubjectAttributes `json:"subjects"`
				}{subjects})
			}
			if len(subjects) == 0 {
				b.note("there are no subjects with attributes (see: carillon attributes set --help)")
				return nil
			}
			return printAttributes(cmd.OutOrStdout(), subjects)
		},
	}
	m.flags(cmd, "table", "json")
	return cmd
}

func newAttributesGetCommand() *cobra.Command {
	var m manageFlags
	cmd := &cobra.Command{
		Use:               "get SUBJECT",
		Aliases:           []string{"show"},
		Short:             "Show the attributes of one subject",
		Example:           `  carillon attributes get sensors.7 --output json | jq -r .attributes.room`,
		Args:              takesSubjects(1, 1, "a subject"),
		ValidArgsFunction: m.completeSubjects,
		RunE: func(cmd *cobra.Command, args []string) error {
			return m.askForAttributes(cmd, admin.AttributesGetSubject, args[0], admin.SubjectRequest{Subject: args[0]})
		},
	}
	m.flags(cmd, "text", "json")
	return cmd
}

func newAttributesSetCommand() *cobra.Command {
	var (
		m        manageFlags
		change   admin.AttributesChange
		revision int64
	)
	cmd := &cobra.Command{
		Use:   "set SUBJECT NAME=VALUE...",
		Short: "Set attributes of a subject",
		Long: `Set attributes of a subject. NAME=VALUE sets a string; NAME:=JSON a string, a number, true, false, or
a list of these. The other attributes of the subject stay, unless --replace is given.`,
		Example: `  carillon attributes set sensors.7 room=410 floor:=4 'tags:=["a","b"]'
  carillon attributes set sensors.7 room=411 --delete floor
  carillon attributes set sensors.7 room=411 --if-revision 31`,
		Args: func(cmd *cobra.Command, args []string) error {
			if err := takesSubjects(1, 1, "a subject")(cmd, args[:min(len(args), 1)]); err != nil {
				return err
			}
			return parseAttributes(args[1:], &change)
		},
		ValidArgsFunction: m.completeSubjects,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("if-revision") {
				change.IfRevision = &revision
			}
			change.Subject = args[0]
			return m.askForAttributes(cmd, admin.AttributesSetSubject, args[0], change)
		},
	}
	m.flags(cmd, "text", "json")
	f := cmd.Flags()
	f.StringSliceVar(&change.Delete, "delete", nil, "names to delete, with commas between them")
	f.BoolVar(&change.Replace, "replace", false, "delete all others")
	f.Int64Var(&revision, "if-revision", 0, "only if the attributes are at this revision; 0: only if there are none")
	return cmd
}

func newAttributesDeleteCommand() *cobra.Command {
	var m manageFlags
	cmd := &cobra.Command{
		Use:               "delete SUBJECT...",
		Aliases:           []string{"rm"},
		Short:             "Delete all attributes of subjects",
		Example:           `  carillon attributes delete sensors.7 sensors.8`,
		Args:              takesSubjects(1, -1, "subjects"),
		ValidArgsFunction: m.completeSubjects,
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := m.connect(cmd)
			if err != nil {
				return err
			}
			defer b.close()
			var failed []error
			for _, subject := range args {
				var gone admin.SubjectAttributes
				err := b.ask(cmd.Context(), admin.AttributesDeleteSubject, admin.SubjectRequest{Subject: subject}, &gone)
				if err == nil {
					err = asError(gone.Error)
				}
				if err = b.explain("delete the attributes of subject "+subject, err); err == nil {
					err = m.deleted(cmd, "the set of attributes of "+subject)
				}
				failed = append(failed, err)
			}
			return errors.Join(failed...)
		},
	}
	m.flags(cmd, "text", "json")
	return cmd
}

// takesSubjects is takes for subjects.
func takesSubjects(least, most int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || most >= 0 && len(args) > most {
			return usageError{fmt.Errorf("%s takes %s, but was given %d arguments (see %[1]s --help)", cmd.CommandPath(), what, len(args))}
		}
		for _, arg := range args {
			if arg == "" || strings.ContainsAny(arg, " \t\r\n") {
				return usageError{fmt.Errorf("%q is no subject: subjects have no blanks", arg)}
			}
		}
		return nil
	}
}

// parseAttributes adds attributes that are written as NAME=VALUE or NAME:=JSON to a change.
func parseAttributes(args []string, to *admin.AttributesChange) error {
	to.Set = attribute.Set{}
	for _, arg := range args {
		name, text, ok := strings.Cut(arg, "=")
		if !ok {
			return usageError{fmt.Errorf("%q is no attribute (write NAME=VALUE for a string, NAME:=JSON for another value)", arg)}
		}
		value := attribute.String(text)
		if short, isJSON := strings.CutSuffix(name, ":"); isJSON {
			var err error
			name = short
			if value, err = attribute.FromJSON([]byte(text)); err != nil {
				return usageError{fmt.Errorf("attribute %s: %w", name, err)}
			}
		}
		if !attribute.ValidName(name) {
			return usageError{fmt.Errorf("%q is no name of an attribute (begin with a letter or _, and go on with letters, digits, _, . and -)", name)}
		}
		if _, twice := to.Set[name]; twice {
			return usageError{fmt.Errorf("attribute %s is given twice", name)}
		}
		to.Set[name] = value
	}
	return nil
}

// askForAttributes makes a request about one subject, and prints its attributes.
func (m *manageFlags) askForAttributes(cmd *cobra.Command, request, subject string, asked any) error {
	b, err := m.connect(cmd)
	if err != nil {
		return err
	}
	defer b.close()
	var is admin.SubjectAttributes
	if err := b.ask(cmd.Context(), request, asked, &is); err != nil {
		return b.explain("attributes of subject "+subject, err)
	}
	if is.Error != nil {
		return is.Error
	}
	if m.output == "json" {
		return printJSON(cmd.OutOrStdout(), is)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %s (revision %d)\n", is.Subject, attributesText(is.Attributes), is.Revision)
	return err
}

// attributesOf returns all pages of a list.
func (b *brokers) attributesOf(ctx context.Context, request admin.AttributesListRequest) (subjects []admin.SubjectAttributes, err error) {
	subjects = []admin.SubjectAttributes{}
	for {
		var list admin.AttributesList
		if err := b.ask(ctx, admin.AttributesListSubject, request, &list); err != nil {
			return nil, err
		}
		if list.Error != nil {
			return nil, list.Error
		}
		subjects = append(subjects, list.Subjects...)
		if request.After = list.Next; list.Next == "" {
			return subjects, nil
		}
	}
}

// completeSubjects completes with subjects that have attributes: the first page of them.
func (m *manageFlags) completeSubjects(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 && cmd.Name() != "delete" {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return m.completeByAsking(cmd, func(ctx context.Context, b *brokers) (names []cobra.Completion) {
		var list admin.AttributesList
		if b.ask(ctx, admin.AttributesListSubject, admin.AttributesListRequest{ListRequest: admin.ListRequest{After: begun}}, &list) != nil {
			return nil
		}
		for _, s := range list.Subjects {
			if strings.HasPrefix(s.Subject, begun) && !slices.Contains(args, s.Subject) {
				names = append(names, s.Subject)
			}
		}
		return names
	})
}

func printAttributes(w io.Writer, subjects []admin.SubjectAttributes) error {
	rows := [][]string{{"SUBJECT", "ATTRIBUTES", "BOUND", "REVISION", "BY"}}
	for _, s := range subjects {
		bound, by := "-", "-"
		if s.Bound {
			bound = "yes"
		}
		if s.User != "" {
			by = s.User
		}
		rows = append(rows, []string{s.Subject, attributesText(s.Attributes), bound, fmt.Sprint(s.Revision), by})
	}
	return printTable(w, rows)
}

// attributesText returns attributes as `carillon attributes set` takes them.
func attributesText(text json.RawMessage) string {
	set, err := attribute.SetFromJSON(text)
	if err != nil || len(set) == 0 {
		return "none"
	}
	var all []string
	for name, value := range set {
		if value.Kind() == attribute.StringKind {
			all = append(all, name+"="+value.Text())
		} else {
			all = append(all, name+":="+string(value.AppendJSON(nil)))
		}
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}
