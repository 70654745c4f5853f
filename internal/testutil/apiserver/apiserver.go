// Package apiserver starts a real Kubernetes API server with its etcd for tests, without any node.
package apiserver

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// startTime and stopTime bound how long the API server or etcd may take to start or to end: far
// longer than either takes on a busy machine of two slow cores.
const startTime, stopTime = 3 * time.Minute, time.Minute

// Assets returns the directory of the programs, which `make test` builds.
func Assets() (string, error) {
	assets := os.Getenv("KUBEBUILDER_ASSETS")
	if assets == "" {
		return "", errors.New("KUBEBUILDER_ASSETS is not set, so there is no API server to test against; use `make test`, which builds one and sets it")
	}
	return assets, nil
}

// Start starts env on ports that no other test has. The caller calls stop when it needs env no
// longer.
func Start(env *envtest.Environment) (config *rest.Config, stop func() error, err error) {
	if _, err := Assets(); err != nil {
		return nil, nil, err
	}
	ports, release, err := testutil.ReservePorts(3)
	if err != nil {
		return nil, nil, err
	}
	local := func(port int) string { return "127.0.0.1:" + strconv.Itoa(port) }
	env.ControlPlaneStartTimeout, env.ControlPlaneStopTimeout = startTime, stopTime
	secure := &env.ControlPlane.GetAPIServer().SecureServing
	secure.Address, secure.Port = "127.0.0.1", strconv.Itoa(ports[0])
	env.ControlPlane.Etcd = &envtest.Etcd{URL: &url.URL{Scheme: "http", Host: local(ports[1])}}
	env.ControlPlane.Etcd.Configure().Set("listen-peer-urls", "http://"+local(ports[2]))
	if config, err = env.Start(); err != nil {
		release()
		return nil, nil, fmt.Errorf("start the API server: %w", errors.Join(err, env.Stop()))
	}
	return config, func() error {
		defer release()
		return env.Stop()
	}, nil
}
