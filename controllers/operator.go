package controllers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/carillon-mq/carillon/api/v1alpha1"
	"github.com/carillon-mq/carillon/controllers/alerting"
	"github.com/carillon-mq/carillon/controllers/apply"
	"github.com/carillon-mq/carillon/controllers/broker"
	"github.com/carillon-mq/carillon/controllers/build"
	"github.com/carillon-mq/carillon/controllers/mirror"
	"github.com/carillon-mq/carillon/controllers/observe"
	"github.com/carillon-mq/carillon/controllers/subscription"
	"github.com/carillon-mq/carillon/controllers/topic"
	"github.com/carillon-mq/carillon/controllers/users"
	"github.com/carillon-mq/carillon/controllers/view"
)

// LeaseName is the name of the lease by which one of several operators is elected to act.
const LeaseName = "operator.carillon.dev"

const (
	// reconcileTimeout bounds one pass.
	reconcileTimeout = time.Minute
	// cacheCheckTimeout bounds the readiness probe's wait for the caches.
	cacheCheckTimeout = time.Second
	// requestRate and requestBurst bound requests to the API server, per second and at once. A
	// converged operator needs almost none. A thousand Topics that are applied at once need one or
	// two status writes and an event each, which should take about 15 s. Above that rate the API
	// server's own fairness decides.
	requestRate, requestBurst = 200, 400
)

// Options configure an operator.
type Options struct {
	// Image is the image of brokers and coordinators. PullSecrets are the names of Secrets to pull
	// it with.
	Image       string
	PullSecrets []string
	// ClusterDomain is the DNS domain of the cluster, for names in certificates; empty: it is not
	// known.
	ClusterDomain string
	// Namespaces are the served namespaces; none: all.
	Namespaces []string
	// LeaderElect elects one of several operators to act, by a lease in Namespace.
	LeaderElect bool
	Namespace   string
	// The listen addresses; empty: no listener.
	MetricsListen string
	HealthListen  string
	Logger        *slog.Logger

	// Tests replace these.
	OpenEtcd     observe.OpenEtcd
	Now          func() time.Time
	PollInterval time.Duration
}

// UseLogger has the libraries of Kubernetes log to the logger, in the whole process. Call it once,
// before anything else of them: their goroutines read it without a lock, and outlive an operator.
func UseLogger(logger *slog.Logger) {
	log := logr.FromSlogHandler(logger.Handler())
	ctrl.SetLogger(log)
	klog.SetLogger(log)
}

// Run runs the operator until ctx ends. UseLogger was called before.
func Run(ctx context.Context, kube *rest.Config, o Options) error {
	if o.Image == "" {
		return errors.New("no image for brokers was given")
	}
	// Tests run several operators in one process, one after the other.
	anyName := true
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return fmt.Errorf("registering kinds: %w", err)
		}
	}
	kube = rest.CopyConfig(kube)
	kube.QPS, kube.Burst = requestRate, requestBurst
	manager, err := ctrl.NewManager(kube, ctrl.Options{
		Scheme:                        scheme,
		Logger:                        logr.FromSlogHandler(o.Logger.Handler()),
		Cache:                         cacheOptions(o.Namespaces),
		Client:                        clientOptions(),
		LeaderElection:                o.LeaderElect,
		LeaderElectionID:              LeaseName,
		LeaderElectionNamespace:       o.Namespace,
		LeaderElectionReleaseOnCancel: true,
		Metrics:                       metricsserver.Options{BindAddress: listenAddress(o.MetricsListen)},
		HealthProbeBindAddress:        listenAddress(o.HealthListen),
		Controller:                    config.Controller{ReconciliationTimeout: reconcileTimeout, SkipNameValidation: &anyName},
	})
	if err != nil {
		return fmt.Errorf("setting up the operator: %w", err)
	}
	if err := addControllers(manager, o); err != nil {
		return err
	}
	if err := addProbes(manager); err != nil {
		return err
	}
	o.Logger.Info("Starting operator", "image", o.Image, "namespaces", o.Namespaces, "leaderElect", o.LeaderElect)
	if err := manager.Start(ctx); err != nil {
		return fmt.Errorf("running the operator: %w", err)
	}
	return nil
}

// cacheOptions returns the options of a small cache: of kinds other than Carillon's own it has the
// operator's objects only, and it drops managed fields.
func cacheOptions(namespaces []string) cache.Options {
	ours := cache.ByObject{Label: labels.SelectorFromSet(labels.Set{build.LabelManagedBy: build.ManagedBy})}
	options := cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&appsv1.StatefulSet{}:           ours,
			&corev1.Service{}:               ours,
			&corev1.ServiceAccount{}:        ours,
			&corev1.Secret{}:                ours,
			&policyv1.PodDisruptionBudget{}: ours,
			&corev1.Pod{}:                   ours,
			&corev1.PersistentVolumeClaim{}: ours,
		},
	}
	if len(namespaces) > 0 {
		options.DefaultNamespaces = map[string]cache.Config{}
		for _, namespace := range namespaces {
			options.DefaultNamespaces[namespace] = cache.Config{}
		}
	}
	return options
}

// clientOptions returns the options of a client that reads ConfigMaps from the API server: a cache
// would need the right to read all of them, and only those with CAs for clients are read.
func clientOptions() client.Options {
	return client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.ConfigMap{}}}}
}

func addControllers(manager ctrl.Manager, o Options) error {
	if o.OpenEtcd == nil {
		o.OpenEtcd = observe.DialEtcd
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.PollInterval == 0 {
		o.PollInterval = mirror.PollInterval
	}
	writer := apply.Writer{Client: manager.GetClient(), Live: manager.GetAPIReader(), FieldOwner: build.FieldOwner}
	groups, err := discovery.NewDiscoveryClientForConfigAndClient(manager.GetConfig(), manager.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("setting up discovery: %w", err)
	}
	gone := observe.Gone{Live: manager.GetAPIReader(), REST: groups.RESTClient()}
	recorder := manager.GetEventRecorder(build.FieldOwner)
	mirrors := mirror.NewSet(manager.GetClient(), o.Logger, o.PollInterval)
	alerts := &alerting.Service{Client: manager.GetClient(), Live: manager.GetAPIReader(), Mirrors: mirrors, Logger: o.Logger}
	if err := alerts.Prepare(); err != nil {
		return fmt.Errorf("setting up the events of alerts: %w", err)
	}
	if err := manager.Add(alerts); err != nil {
		return fmt.Errorf("setting up the events of alerts: %w", err)
	}
	results := &users.Results{}
	secrets := &users.Reconciler{Client: manager.GetClient(), Mirrors: mirrors, Results: results, Own: alerts.User, Logger: o.Logger}
	if err := secrets.SetupWithManager(manager, cacheOptions(o.Namespaces).DefaultNamespaces); err != nil {
		return fmt.Errorf("setting up the controller of users: %w", err)
	}
	for kind, reconciler := range map[string]interface{ SetupWithManager(ctrl.Manager) error }{
		"Broker": &broker.Reconciler{
			Client:      manager.GetClient(),
			Live:        manager.GetAPIReader(),
			Writer:      writer,
			Status:      &apply.Statuses{Writer: writer},
			Events:      recorder,
			OpenEtcd:    o.OpenEtcd,
			Mirrors:     mirrors,
			Users:       results,
			Now:         o.Now,
			Image:       o.Image,
			PullSecrets: o.PullSecrets,

			ClusterDomain: o.ClusterDomain,
		},
		"Mirror":       &mirror.Reconciler{Client: manager.GetClient(), Live: manager.GetAPIReader(), Set: mirrors, OpenEtcd: o.OpenEtcd, Now: o.Now},
		"Topic":        &topic.Reconciler{Client: manager.GetClient(), Gone: gone, Status: &apply.Statuses{Writer: writer}, Events: recorder, Mirrors: mirrors, Now: o.Now},
		"Subscription": &subscription.Reconciler{Client: manager.GetClient(), Gone: gone, Status: &apply.Statuses{Writer: writer}, Events: recorder, Mirrors: mirrors, Now: o.Now},
		"View":         &view.Reconciler{Client: manager.GetClient(), Gone: gone, Status: &apply.Statuses{Writer: writer}, Events: recorder, Mirrors: mirrors, Now: o.Now, Unread: alerts.Unread},
	} {
		if err := reconciler.SetupWithManager(manager); err != nil {
			return fmt.Errorf("setting up the controller of %ss: %w", kind, err)
		}
	}
	return nil
}

// addProbes adds a liveness probe that succeeds while the process answers, and a readiness probe
// that succeeds once the caches are filled, on the leader and on others.
func addProbes(manager ctrl.Manager) error {
	if err := manager.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("setting up the liveness probe: %w", err)
	}
	cached := func(request *http.Request) error {
		ctx, cancel := context.WithTimeout(request.Context(), cacheCheckTimeout)
		defer cancel()
		if !manager.GetCache().WaitForCacheSync(ctx) {
			return errors.New("the caches are not filled yet")
		}
		return nil
	}
	if err := manager.AddReadyzCheck("caches", cached); err != nil {
		return fmt.Errorf("setting up the readiness probe: %w", err)
	}
	return nil
}

// listenAddress returns an address as controller-runtime takes it: "0" for none.
func listenAddress(address string) string {
	if address == "" {
		return "0"
	}
	return address
}
