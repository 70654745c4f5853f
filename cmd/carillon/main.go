// Command carillon is all of Carillon in one binary: the operator, the broker, its coordinator, the
// benchmark, and a small command line. Each subcommand has a file here, with flags and assembly
// only.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// version is set by the build (-ldflags "-X main.version=...").
var version = "0.0.0-dev"

// Exit codes: 0 is success, 1 a failure while running, 2 a wrong command line.
const (
	exitFailure = 1
	exitUsage   = 2
)

// usageError marks a mistake in the command line.
type usageError struct{ error }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string) int {
	root := newRoot()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "carillon:", err)
	if usage := (usageError{}); errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailure
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "carillon",
		Short:         "A Kubernetes operator and the replicated pub-sub broker that it runs",
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          knownCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w (see %s --help)", err, cmd.CommandPath())}
	})
	root.SuggestionsMinimumDistance = 2 // the distance at which knownCommand suggests a name
	root.AddCommand(subcommands()...)
	return root
}

// knownCommand refuses an unknown subcommand, and suggests similar ones.
func knownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := ""
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = fmt.Sprintf("; did you mean %s?", strings.Join(near, " or "))
	}
	return usageError{fmt.Errorf("there is no command %q%s (see %s --help)", args[0], hint, cmd.CommandPath())}
}
