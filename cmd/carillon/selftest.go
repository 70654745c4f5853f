package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"

	"github.com/carillon-mq/carillon/api/v1alpha1"
	"github.com/carillon-mq/carillon/internal/selftest"
)

// newSelftestCommand returns the command that `helm test` runs. It is hidden, since it is of no use
// outside a pod.
func newSelftestCommand() *cobra.Command {
	var namespace string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:    "selftest",
		Short:  "Make a small Broker, publish and receive through it, and remove it again",
		Long:   "Makes a small Broker, publishes and receives through it, and removes it with its volumes.\nRuns in a pod, since it connects to the Broker's Service.",
		Hidden: true,
		Args:   noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if namespace == "" {
				return usageError{fmt.Errorf("--namespace is required: the namespace in which the Broker is made")}
			}
			if timeout <= 0 {
				return usageError{fmt.Errorf("--timeout %s: must be more than nothing", timeout)}
			}
			rest, err := config.GetConfig()
			if err != nil {
				return fmt.Errorf("find the Kubernetes API: %w", err)
			}
			scheme := runtime.NewScheme()
			if err := clientgoscheme.AddToScheme(scheme); err != nil {
				return err
			}
			if err := v1alpha1.AddToScheme(scheme); err != nil {
				return err
			}
			kube, err := client.New(rest, client.Options{Scheme: scheme})
			if err != nil {
				return fmt.Errorf("reach the Kubernetes API: %w", err)
			}
			ctx, cancel := context.WithTimeoutCause(cmd.Context(), timeout, fmt.Errorf("not done within --timeout %s", timeout))
			defer cancel()
			test := selftest.Test{Client: kube, Namespace: namespace, Out: cmd.OutOrStdout(), Poll: time.Second, Exchange: selftest.Messages}
			return test.Run(ctx)
		},
	}
	cmd.Flags().StringVar(&namespace, "namespace", "", "namespace in which the Broker is made")
	cmd.Flags().DurationVar(&timeout, "timeout", 5*time.Minute, "give up after this time; the removal has 90 s of its own")
	return cmd
}
