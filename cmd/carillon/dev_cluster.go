package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// runCluster runs etcd in this process, and a process for each broker, until ctx ends.
func (o *devOptions) runCluster(ctx context.Context) (err error) {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program, to start brokers: %w", err)
	}
	local, err := o.startEtcd(ctx)
	if err != nil {
		return err
	}
	// After the brokers, which end their registrations.
	defer func() { err = errors.Join(err, local.Close()) }()
	if err := prepareDevData(ctx, o.data, o.brokers); err != nil {
		return err
	}
	if err := o.makeTLS(); err != nil {
		return err
	}
	var ports devPorts
	defer ports.unlock()
	brokers, err := o.plan(&ports, program, local.Endpoints())
	if err != nil {
		return err
	}
	ctx, failed := context.WithCancelCause(ctx)
	defer failed(nil)
	var running sync.WaitGroup
	running.Go(func() { watchEtcd(ctx, local, failed) })
	for _, b := range brokers {
		running.Go(func() { b.supervise(ctx, failed) })
	}
	if awaitCluster(ctx, brokers) {
		o.announce(brokers)
	}
	<-ctx.Done()
	running.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// plan chooses the addresses of each broker, for all its lives.
func (o *devOptions) plan(ports *devPorts, program string, endpoints []string) (brokers []*devBroker, err error) {
	defer func() { err = errors.Join(err, ports.release(0)) }()
	clients, err := ports.consecutive("listen", o.listen, o.brokers)
	if err != nil {
		return nil, err
	}
	web := make([]string, o.brokers)
	if o.web != "" {
		if web, err = ports.consecutive("websocket-listen", o.web, o.brokers); err != nil {
			return nil, err
		}
	}
	http := o.http
	if http == "" {
		http = loopback + ":0" // needed to learn whether a broker is ready
	}
	https, err := ports.consecutive("http-listen", http, o.brokers)
	if err != nil {
		return nil, err
	}
	routes, err := ports.free(loopback, o.brokers)
	if err != nil {
		return nil, err
	}
	var output sync.Mutex
	secure := []string(nil)
	if o.tls {
		secure = []string{"--client-tls-dir", o.tlsDir}
	}
	for n := range o.brokers {
		name, dir := fmt.Sprintf("dev-%d", n), devClusterDir(o.data, n)
		brokers = append(brokers, &devBroker{
			name: name, dir: dir, program: program, environment: o.environment(),
			client: reachable(clients[n]), web: reachable(web[n]), http: reachable(https[n]),
			arguments: append([]string{
				"broker", "--name", name, "--cluster", devCluster, "--data", dir,
				"--client-listen", clients[n], "--route-listen", routes[n], "--http-listen", https[n],
				"--etcd-endpoints", strings.Join(endpoints, ","), "--profile", o.profile, "--lame-duck", devLameDuck.String(),
				"--disk-stall-limit", "0", // they share one disk, so no other one could lead
				"--log-format", o.logging.format, "--log-level", o.logging.level,
				"--push-allow", strings.Join(o.pushAllow, ","), "--push-by-clients=" + strconv.FormatBool(len(o.allowed) > 0),
			}, slices.Concat(secure, o.webSocketFlags(web[n]))...),
			output: &prefixed{mu: &output, to: o.errors, name: name},
			log:    o.log,
		})
	}
	return brokers, nil
}

// webSocketFlags returns the flags of a broker's port for WebSocket.
func (o *devOptions) webSocketFlags(listen string) []string {
	if listen == "" {
		return nil
	}
	return []string{"--websocket-listen", listen, "--websocket-origins", strings.Join(o.webSocket.origins, ",")}
}

// environment returns this process's environment with the credentials, which must not be in the
// list of processes.
func (o *devOptions) environment() []string {
	var all []string
	for _, variable := range os.Environ() {
		switch name, _, _ := strings.Cut(variable, "="); name {
		case "CARILLON_USER", "CARILLON_PASSWORD", "CARILLON_TOKEN", "CARILLON_USERS":
		default:
			all = append(all, variable)
		}
	}
	return append(all, "CARILLON_USER="+o.auth.User, "CARILLON_PASSWORD="+o.auth.Password, "CARILLON_TOKEN="+o.auth.Token, "CARILLON_USERS="+o.users)
}

// announce prints the addresses for clients, and commands to try.
func (o *devOptions) announce(brokers []*devBroker) {
	var urls, web []string
	for _, b := range brokers {
		urls, web = append(urls, o.url(b.client)), append(web, b.web)
	}
	fmt.Fprintf(o.out, "ready: %s\n", strings.Join(urls, ","))
	o.announceWebSocket(web...)
	fmt.Fprintf(o.out, `Try, with any NATS client or in other terminals:
  carillon sub 'greet.>' --server %s%s
  carillon pub greet.world hello --server %s%s
  kill -9 $(cat %s)    # it is started again
  curl -s http://%s/varz
`, urls[0], o.trust(), urls[1], o.trust(), pidFile(brokers[0].dir), brokers[0].http)
}
