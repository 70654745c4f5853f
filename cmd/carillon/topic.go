package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func newTopicCommand() *cobra.Command {
	cmd := group("topic", "List, create, show, delete and read Topics", newTopicListCommand(), newTopicCreateCommand(),
		newTopicShowCommand(), newTopicDeleteCommand(), newTopicTailCommand())
	cmd.Long = `List, create, show, delete and read Topics: named logs of subjects, whose messages are kept.

All of it goes through a broker, as any NATS client does it. A Topic that a manifest declares is
changed and deleted by kubectl; what was made here is nobody's but the clients'.`
	cmd.Aliases = []string{"topics"}
	return cmd
}

// group returns a command that only has subcommands.
func group(name, short string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use:   name,
		Short: short,
		Args:  knownCommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.SuggestionsMinimumDistance = 2
	cmd.AddCommand(commands...)
	return cmd
}

// manageFlags are the flags of all commands about Topics, Subscriptions and brokers.
type manageFlags struct {
	client  clientFlags
	timeout time.Duration
	output  string
	outputs []string
}

func (m *manageFlags) flags(cmd *cobra.Command, outputs ...string) {
	f := cmd.Flags()
	m.client.flags(f)
	m.outputs = outputs
	f.DurationVar(&m.timeout, "timeout", 5*time.Second, "how long to wait for each answer")
	f.StringVarP(&m.output, "output", "o", outputs[0], strings.Join(outputs, " or "))
	complete(cmd, "output", outputs...)
}

func (m *manageFlags) valid() error {
	if m.timeout <= 0 {
		return usageError{fmt.Errorf("--timeout %s: write for example 5s", m.timeout)}
	}
	for _, output := range m.outputs {
		if m.output == output {
			return nil
		}
	}
	return usageError{fmt.Errorf("--output %q: choose %s", m.output, strings.Join(m.outputs, " or "))}
}

// takes returns a check of the number of arguments. what describes them.
func takes(least, most int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || most >= 0 && len(args) > most {
			return usageError{fmt.Errorf("%s takes %s, but was given %d arguments (see %[1]s --help)", cmd.CommandPath(), what, len(args))}
		}
		for _, arg := range args {
			if arg == "" || strings.ContainsAny(arg, ".*> \t\r\n") {
				return usageError{fmt.Errorf("%q is not a name: names have no blanks, and none of . * >", arg)}
			}
		}
		return nil
	}
}

// complete sets the completions of a flag.
func complete(cmd *cobra.Command, flag string, values ...string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// completionTimeout bounds a completion: a person waits for it at the keyboard.
const completionTimeout = time.Second

// completeByAsking completes with a broker's answer, within completionTimeout. On an error it
// completes with nothing, since a shell shows no errors.
func (m *manageFlags) completeByAsking(cmd *cobra.Command, ask func(ctx context.Context, b *brokers) []cobra.Completion) ([]cobra.Completion, cobra.ShellCompDirective) {
	quick := *m
	quick.timeout = completionTimeout
	b, err := quick.connect(cmd)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer b.close()
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	return ask(ctx, b), cobra.ShellCompDirectiveNoFileComp
}

// completeNames completes the name of a Topic and, with two arguments, that of a Subscription
// behind it.
func (m *manageFlags) completeNames(most int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if most >= 0 && len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return m.completeByAsking(cmd, func(ctx context.Context, b *brokers) (names []cobra.Completion) {
			if most == 2 && len(args) == 1 {
				names, _ = b.subscriptionNames(ctx, args[0])
			} else {
				names, _ = b.topicNames(ctx)
			}
			return names
		})
	}
}

// confirm asks a question, unless yes is set. If the answer isn't yes, the error has the text
// otherwise.
func confirm(cmd *cobra.Command, yes bool, question, otherwise string) error {
	if yes {
		return nil
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s [y/N] ", question)
	var answer string
	if _, err := fmt.Fscanln(cmd.InOrStdin(), &answer); err != nil || !strings.EqualFold(answer, "y") && !strings.EqualFold(answer, "yes") {
		return fmt.Errorf("%s (answer y, or give --yes)", otherwise)
	}
	return nil
}
