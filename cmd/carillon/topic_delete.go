package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/carillon-mq/carillon/broker/admin"
	"github.com/carillon-mq/carillon/broker/coordination"
)

func newTopicDeleteCommand() *cobra.Command {
	var (
		m   manageFlags
		yes bool
	)
	cmd := &cobra.Command{
		Use:     "delete TOPIC...",
		Aliases: []string{"rm"},
		Short:   "Delete Topics with all their messages and Subscriptions",
		Long: `Delete Topics with all their messages and Subscriptions, after asking. What a manifest
declares is deleted by kubectl; what a manifest left behind is deleted here.`,
		Example: `  carillon topic delete orders
  carillon topic rm orders payments --yes`,
		Args:              takes(1, -1, "names of topics"),
		ValidArgsFunction: m.completeNames(-1),
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := m.connect(cmd)
			if err != nil {
				return err
			}
			defer b.close()
			var failed []error
			for _, name := range args {
				err := b.deleteTopic(cmd, name, yes)
				if err == nil {
					err = m.deleted(cmd, "topic "+name)
				}
				failed = append(failed, err)
			}
			return errors.Join(failed...)
		},
	}
	m.flags(cmd, "text", "json")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "don't ask")
	return cmd
}

// deleted prints that something was deleted.
func (m *manageFlags) deleted(cmd *cobra.Command, what string) error {
	if m.output == "json" {
		return json.NewEncoder(cmd.OutOrStdout()).Encode(map[string]string{"deleted": what})
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s is deleted\n", what)
	return err
}

func (b *brokers) deleteTopic(cmd *cobra.Command, name string, yes bool) error {
	declared, err := b.declaredTopic(cmd.Context(), name)
	var refusal *admin.Error
	switch {
	case errors.As(err, &refusal):
		return err
	case err != nil && !errors.Is(err, errNoAdmin):
		return b.explain("delete topic "+name, err)
	case declared != nil:
		if err := declaredElsewhere("topic "+name, "topics", declared.Owner); err != nil {
			return err
		}
	}
	stream, err := b.stream(cmd.Context(), name)
	question := fmt.Sprintf("Delete topic %s, its messages and subscriptions?", name)
	switch {
	case err == nil:
		state := stream.CachedInfo().State
		question = fmt.Sprintf("Delete topic %s with %d messages (%s) and %d subscriptions?", name, state.Msgs, bytesText(state.Bytes), state.Consumers)
	case declared == nil:
		return b.found(name, err)
	}
	if err := confirm(cmd, yes, question, "nothing was deleted"); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), b.timeout)
	defer cancel()
	if err := b.js.DeleteStream(ctx, name); err != nil {
		return b.explain("delete topic "+name, err)
	}
	return nil
}

// declaredElsewhere returns the error for an object of a manifest, so that nobody is asked to
// confirm what the broker would refuse.
func declaredElsewhere(what, resource string, owner admin.Owner) error {
	if owner.Kind != coordination.ManifestOwner || owner.Orphaned != nil {
		return nil
	}
	refusal := &coordination.NotOwnerError{What: what, Owner: owner.Coordination()}
	return fmt.Errorf("%w: kubectl delete --namespace %s %s.carillon.dev %s", refusal, owner.Namespace, resource, owner.Name)
}
