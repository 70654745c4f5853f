package main

import "github.com/spf13/cobra"

// subcommands lists them in the order in which a reader meets them; each is made in the
// file of its name.
func subcommands() []*cobra.Command {
	return []*cobra.Command{
		newDevCommand(),
		newBrokerCommand(),
		newCoordinatorCommand(),
		newOperatorCommand(),
		newPubCommand(),
		newSubCommand(),
		newTopicCommand(),
		newSubscriptionCommand(),
		newBrokersCommand(),
		newBenchCommand(),
		newSelftestCommand(),
	}
}
