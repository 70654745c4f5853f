package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carillon-mq/carillon/broker/admin"
	"github.com/carillon-mq/carillon/broker/coordination"
)

func newBrokersDrainCommand() *cobra.Command {
	var (
		m          manageFlags
		leadership bool
	)
	cmd := &cobra.Command{
		Use:   "drain BROKER",
		Short: "Relieve a broker of what it leads and holds",
		Long: `Relieve a broker of what it leads and holds. Others take the lead of its shards and copy its replicas;
a replica leaves it when the one in its place is in sync, and nothing new is placed on it. With --leadership
it leads nothing and keeps its replicas: that is for a broker that comes back soon.

A drain lasts until it is ended with: carillon brokers undrain. The command returns at once; carillon brokers
shows how far it has come. To change from one kind to the other, give the other.

In Kubernetes this is the operator's: it drains the brokers that spec.replicas leaves out, and ends the drain of
others. There, --leadership is for a while, and to have fewer brokers, lower spec.replicas.`,
		Example: `  carillon brokers drain dev-2
  carillon brokers drain dev-2 --leadership`,
		Args:              oneBroker,
		ValidArgsFunction: m.completeBrokers(func(m *admin.Member) bool { return m.Drain != coordination.DrainAll }),
		RunE: func(cmd *cobra.Command, args []string) error {
			request := admin.DrainRequest{Mode: coordination.DrainAll}
			if leadership {
				request.Mode = coordination.DrainLeadership
			}
			return m.changeDrain(cmd, args[0], admin.BrokerDrainSubject, request)
		},
	}
	m.flags(cmd, "text", "json")
	cmd.Flags().BoolVar(&leadership, "leadership", false, "let it lead nothing, and keep its replicas")
	return cmd
}

func newBrokersUndrainCommand() *cobra.Command {
	var m manageFlags
	cmd := &cobra.Command{
		Use:   "undrain BROKER",
		Short: "End the drain of a broker",
		Long: `End the drain of a broker. It is given shards and leads again, in time, and what has left it
comes back only as the balance asks for. It is no error if it was not drained.`,
		Example:           `  carillon brokers undrain dev-2`,
		Args:              oneBroker,
		ValidArgsFunction: m.completeBrokers(func(m *admin.Member) bool { return m.Drain != "" }),
		RunE: func(cmd *cobra.Command, args []string) error {
			return m.changeDrain(cmd, args[0], admin.BrokerUndrainSubject, nil)
		},
	}
	m.flags(cmd, "text", "json")
	return cmd
}

// oneBroker accepts one name of a broker, which may have dots.
func oneBroker(cmd *cobra.Command, args []string) error {
	if len(args) != 1 || args[0] == "" {
		return usageError{fmt.Errorf("%s takes the name or id of a broker, but was given %d arguments (see %[1]s --help)", cmd.CommandPath(), len(args))}
	}
	return nil
}

func (m *manageFlags) changeDrain(cmd *cobra.Command, name, subject string, request any) error {
	b, err := m.connect(cmd)
	if err != nil {
		return err
	}
	defer b.close()
	member, err := b.member(cmd.Context(), name)
	if err != nil {
		return err
	}
	var info admin.BrokerInfo
	err = b.ask(cmd.Context(), subject+member.ID, request, &info)
	if err == nil {
		err = asError(info.Error)
	}
	switch {
	case err != nil:
		return b.explain(strings.TrimPrefix(cmd.CommandPath(), "carillon ")+" "+name, err)
	case m.output == "json":
		return printJSON(cmd.OutOrStdout(), info.Broker)
	}
	return printDrain(cmd.OutOrStdout(), info.Broker, subject == admin.BrokerUndrainSubject)
}

// printDrain prints what a broker is drained of now.
func printDrain(w io.Writer, m *admin.Member, ended bool) (err error) {
	who, status := memberText(m), fmt.Sprintf("it leads %s and holds %s", counted(m.Leads, "shard"), counted(m.Holds, "replica"))
	switch {
	case ended && m.Drain != "":
		_, err = fmt.Fprintf(w, "the drain of %s is ended, but it is about to stop, and leads nothing until it is back\n", who)
	case ended:
		_, err = fmt.Fprintf(w, "%s is drained no longer: %s\n", who, status)
	case m.Drain == coordination.DrainLeadership:
		_, err = fmt.Fprintf(w, "%s is to lead nothing: %s\n", who, status)
	default:
		_, err = fmt.Fprintf(w, "%s is to lead and hold nothing: %s\n", who, status)
	}
	if err == nil && m.Why != "" {
		_, err = fmt.Fprintf(w, "%d of them can't leave; %s\n", m.Blocked, m.Why)
	}
	return err
}

// counted returns "1 shard", or "2 shards".
func counted(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// completeBrokers completes the name of a broker, or its id if it has no name or shares it.
func (m *manageFlags) completeBrokers(which func(*admin.Member) bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return m.completeByAsking(cmd, func(ctx context.Context, b *brokers) []cobra.Completion {
			members, _ := b.members(ctx)
			named := map[string]int{}
			for _, member := range members {
				named[member.Name]++
			}
			for _, member := range members {
				switch {
				case !which(&member):
				case member.Name == "" || named[member.Name] > 1:
					names = append(names, member.ID)
				default:
					names = append(names, member.Name)
				}
			}
			return names
		})
	}
}
