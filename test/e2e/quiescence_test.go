//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	quietTime   = 30 * time.Second
	mostMemory  = 100 << 20
	mostCPU     = 0.005 // cores
	leasePeriod = 2 * time.Second
	// restTime bounds the time until a cluster is at rest. Go returns the memory of a peak with the
	// collections that it makes every two minutes.
	restTime = 5 * time.Minute
)

// quiescence waits until a converged cluster rests for quietTime: no object changes, the operator
// writes only its lease, and takes almost no CPU. What earlier stories left to do is done before.
func quiescence(t *testing.T, e *environment) {
	wait := upTo(restTime)
	wait.Each += quietTime
	wait.For(t, fmt.Sprintf("the cluster rests for %s", quietTime), func(ctx context.Context) error {
		err := e.rests(ctx, t)
		if err != nil {
			t.Log(err)
		}
		return err
	})
}

// rests watches the cluster for quietTime, and returns an error unless it is at rest.
func (e *environment) rests(ctx context.Context, t *testing.T) error {
	start, err := e.operatorCost(ctx)
	if err != nil {
		return err
	}
	before, err := e.versions(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	select {
	case <-time.After(quietTime):
	case <-ctx.Done():
		return ctx.Err()
	}
	elapsed := time.Since(began).Seconds()
	after, err := e.versions(ctx)
	if err != nil {
		return err
	}
	end, err := e.operatorCost(ctx)
	if err != nil {
		return err
	}

	var errs []error
	if err := difference(before, after); err != nil {
		errs = append(errs, fmt.Errorf("in %s of rest something was written: %w", quietTime, err))
	}
	if most := elapsed/leasePeriod.Seconds() + 2; end.leases-start.leases > most {
		errs = append(errs, fmt.Errorf("the operator wrote %.0f times by PUT in %.0f s, its lease explains at most %.0f", end.leases-start.leases, elapsed, most))
	}
	if n := end.writes - start.writes; n > 0 {
		errs = append(errs, fmt.Errorf("the operator sent %.0f POST, PATCH or DELETE requests in %.0f s of rest", n, elapsed))
	}
	cpu := (end.cpu - start.cpu) / elapsed
	t.Logf("%d objects at rest; the operator: %.1f MiB, %.2f m CPU", len(after), end.memory/(1<<20), cpu*1000)
	if end.memory > mostMemory {
		errs = append(errs, fmt.Errorf("the operator takes %.0f MiB, more than %d", end.memory/(1<<20), mostMemory>>20))
	}
	if cpu > mostCPU {
		errs = append(errs, fmt.Errorf("the operator takes %.1f m CPU at rest, more than %.0f", cpu*1000, mostCPU*1000))
	}
	return errors.Join(errs...)
}

// versions returns the version of every object in the namespaces of the operator and its users,
// except leases and events.
func (e *environment) versions(ctx context.Context) (map[string]string, error) {
	api, err := discovery.NewDiscoveryClientForConfig(e.config)
	if err != nil {
		return nil, err
	}
	lists, err := api.ServerPreferredNamespacedResources()
	if err != nil {
		return nil, err
	}
	versions := map[string]string{}
	for _, list := range discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "get"}}, lists) {
		group, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, resource := range list.APIResources {
			if resource.Kind == "Event" || resource.Kind == "Lease" {
				continue
			}
			for _, ns := range []string{operatorNamespace, namespace} {
				objects := &metav1.PartialObjectMetadataList{}
				objects.SetGroupVersionKind(group.WithKind(resource.Kind + "List"))
				if err := e.List(ctx, objects, client.InNamespace(ns)); err != nil {
					return nil, fmt.Errorf("list %s: %w", resource.Name, err)
				}
				for _, o := range objects.Items {
					versions[resource.Name+" "+ns+"/"+o.Name] = o.ResourceVersion
				}
			}
		}
	}
	return versions, nil
}

func difference(before, after map[string]string) error {
	var changed []string
	for name, version := range after {
		if was, ok := before[name]; !ok {
			changed = append(changed, name+" is new")
		} else if was != version {
			changed = append(changed, name+" changed")
		}
	}
	for name := range before {
		if _, ok := after[name]; !ok {
			changed = append(changed, name+" is gone")
		}
	}
	if len(changed) == 0 {
		return nil
	}
	return errors.New(strings.Join(changed, ", "))
}

// cost is what the operator's metrics say of itself.
type cost struct{ memory, cpu, leases, writes float64 }

func (e *environment) operatorCost(ctx context.Context) (cost, error) {
	pods := &corev1.PodList{}
	if err := e.List(ctx, pods, client.InNamespace(operatorNamespace)); err != nil {
		return cost{}, err
	}
	if len(pods.Items) != 1 {
		return cost{}, fmt.Errorf("there are %d pods in %s, want the operator's", len(pods.Items), operatorNamespace)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+pods.Items[0].Status.PodIP+":8080/metrics", nil)
	if err != nil {
		return cost{}, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return cost{}, err
	}
	defer func() { _ = response.Body.Close() }()
	c := cost{}
	found := 0
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		name, text, ok := cutLast(lines.Text(), " ")
		value, err := strconv.ParseFloat(text, 64)
		if !ok || err != nil || strings.HasPrefix(name, "#") {
			continue
		}
		metric, labels, _ := strings.Cut(name, "{")
		switch metric {
		case "process_resident_memory_bytes":
			c.memory = value
		case "process_cpu_seconds_total":
			c.cpu = value
		case "rest_client_requests_total":
			switch {
			case strings.Contains(labels, `method="PUT"`):
				c.leases += value
			case strings.Contains(labels, `method="POST"`), strings.Contains(labels, `method="PATCH"`), strings.Contains(labels, `method="DELETE"`):
				c.writes += value
			}
		default:
			continue
		}
		found++
	}
	if found < 3 {
		return cost{}, fmt.Errorf("the operator's metrics lack memory, CPU or requests: %+v", c)
	}
	return c, nil
}

func cutLast(s, separator string) (before, after string, found bool) {
	i := strings.LastIndex(s, separator)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(separator):], true
}
