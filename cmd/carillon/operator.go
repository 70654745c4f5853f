package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/carillon-mq/carillon/broker/memory"
	"github.com/carillon-mq/carillon/controllers"
)

func newOperatorCommand() *cobra.Command {
	var options controllers.Options
	var namespaces []string
	var log logging
	cmd := &cobra.Command{
		Use:   "operator",
		Short: "Make the cluster match the Brokers, Topics and Subscriptions in it",
		Long: "Make the cluster match the Brokers, Topics and Subscriptions in it.\n\n" +
			"Inside a pod it uses the pod's service account; elsewhere KUBECONFIG, or ~/.kube/config.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			logger, err := log.logger(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			options.Logger = logger
			controllers.UseLogger(logger)
			options.Namespace = os.Getenv("POD_NAMESPACE")
			resolver, err := os.ReadFile("/etc/resolv.conf")
			if err != nil {
				logger.Debug("The domain of the cluster is not known", "error", err)
			}
			options.ClusterDomain = clusterDomain(string(resolver))
			if options.Image == "" {
				return usageError{errors.New("--image is required: the image that brokers and coordinators run, usually the operator's own")}
			}
			if options.Namespaces, err = watched(namespaces, options.Namespace); err != nil {
				return usageError{err}
			}
			if options.LeaderElect && options.Namespace == "" {
				return usageError{errors.New("--leader-elect needs the operator's namespace in the environment variable POD_NAMESPACE (or take --leader-elect=false where only one operator runs)")}
			}
			kube, err := ctrl.GetConfig()
			if err != nil {
				return fmt.Errorf("finding the Kubernetes API: %w (run it in a pod, or set KUBECONFIG)", err)
			}
			// A thousand manifests that are applied at once leave garbage, and an operator at rest
			// allocates too little for the runtime to collect it.
			go memory.GiveBack(cmd.Context())
			return controllers.Run(cmd.Context(), kube, options)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&options.Image, "image", "", "image that brokers and coordinators run (required)")
	flags.StringSliceVar(&options.PullSecrets, "image-pull-secrets", nil, "names of Secrets, in the Brokers' namespaces, to pull the image with")
	flags.StringSliceVar(&namespaces, "watch-namespaces", nil, "namespaces to serve, or * for all (default: the operator's own, from POD_NAMESPACE)")
	flags.BoolVar(&options.LeaderElect, "leader-elect", true, "act only while holding a lease, so that several operators may run")
	flags.StringVar(&options.MetricsListen, "metrics-listen", ":8080", "address that serves /metrics; empty: none")
	flags.StringVar(&options.HealthListen, "health-listen", ":8081", "address that serves /healthz and /readyz; empty: none")
	log.flags(flags, "info")
	return cmd
}

// watched returns the namespaces to serve; none: all.
func watched(asked []string, own string) ([]string, error) {
	switch {
	case slices.Contains(asked, "*"):
		if len(asked) > 1 {
			return nil, fmt.Errorf("--watch-namespaces %s: * is all namespaces already; give it alone", strings.Join(asked, ","))
		}
		return nil, nil
	case slices.Contains(asked, ""):
		return nil, errors.New("--watch-namespaces: a name is empty; write names with commas between them, or *")
	case len(asked) > 0:
		return asked, nil
	case own != "":
		return []string{own}, nil
	}
	return nil, errors.New("--watch-namespaces is required where the environment variable POD_NAMESPACE is not set: give the namespaces to serve, or * for all")
}

// clusterDomain returns the DNS domain of the cluster, such as cluster.local, from a pod's
// resolv.conf, which searches svc.DOMAIN. It is empty outside of a pod.
func clusterDomain(resolver string) string {
	for line := range strings.Lines(resolver) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] != "search" {
			continue
		}
		for _, domain := range words[1:] {
			if domain, ok := strings.CutPrefix(domain, "svc."); ok {
				return strings.TrimSuffix(domain, ".")
			}
		}
	}
	return ""
}
