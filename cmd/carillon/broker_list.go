package main

import (
	"github.com/spf13/cobra"

	"github.com/carillon-mq/carillon/broker/admin"
)

func newBrokersCommand() *cobra.Command {
	list := newBrokersListCommand("brokers", knownCommand)
	list.Long = `List the brokers of a cluster, drain them, and see to their clocks and to what they set aside.

` + list.Long
	list.SuggestionsMinimumDistance = 2
	list.AddCommand(newBrokersListCommand("list", takes(0, 0, "no arguments")), newBrokersDrainCommand(), newBrokersUndrainCommand(),
		newBrokersClocksCommand(), newBrokersConfirmClockCommand(), newBrokersSetAsideCommand())
	return list
}

func newBrokersListCommand(name string, args cobra.PositionalArgs) *cobra.Command {
	var m manageFlags
	cmd := &cobra.Command{
		Use:   name,
		Short: "List brokers: what they lead and hold, and whether they are drained",
		Long: `LEADS is the number of shards that a broker leads, HOLDS that of its replicas, those that it leads among
them, and IN SYNC how many of these have everything that was acknowledged. SUSPECT are replicas that a
broker can't vouch for after an accident: they are compared with others, and repaired. A broker that is
away is listed as long as it has replicas, or is drained; where nobody remembers its name, its id is all.`,
		Example: `  carillon brokers
  carillon brokers list --output json | jq '.brokers[].name'`,
		Args:              args,
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
			if m.output == "json" {
				return printJSON(cmd.OutOrStdout(), struct {
					Brokers []admin.Member `json:"brokers"`
				}{members})
			}
			if err := printBrokers(cmd.OutOrStdout(), members); err != nil {
				return err
			}
			for _, member := range members {
				if member.Why != "" {
					b.note("%s: %s", memberText(&member), member.Why)
				}
			}
			return nil
		},
	}
	if name == "list" {
		cmd.Aliases = []string{"ls"}
	}
	m.flags(cmd, "table", "json")
	return cmd
}

func memberText(m *admin.Member) string { return "broker " + brokerText(m.Broker) }
