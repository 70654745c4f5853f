package main

import "github.com/spf13/cobra"

// subcommands returns all subcommands. Each is defined in the file of its name.
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
		newViewCommand(),
		newAttributesCommand(),
		newQueryCommand(),
		newBrokersCommand(),
		newUserCommand(),
		newBenchCommand(),
		newSelftestCommand(),
	}
}
