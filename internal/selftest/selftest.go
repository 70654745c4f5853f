package selftest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/carillon-mq/carillon/api/v1alpha1"
)

// cleanupTimeout bounds the removal. A broker drains for 20 s and its pod is given 60 s to stop.
const cleanupTimeout = 90 * time.Second

// Test is one check of one namespace.
type Test struct {
	Client    client.Client
	Namespace string
	Out       io.Writer     // a line per step
	Poll      time.Duration // between two looks at the API server
	// Exchange publishes and receives through the brokers at a URL; Messages does.
	Exchange func(ctx context.Context, url string, say func(format string, args ...any)) error

	began time.Time
}

// Run makes the Broker, waits until it is Ready, exchanges messages through it and removes it.
// ctx bounds everything but the removal.
func (t *Test) Run(ctx context.Context) (err error) {
	t.began = time.Now()
	broker := smallBroker(t.Namespace)
	if err := t.Client.Create(ctx, broker); err != nil {
		return fmt.Errorf("create a Broker in namespace %s: %w", t.Namespace, err)
	}
	t.say("made Broker %s/%s: profile small, one broker, one coordinator", broker.Namespace, broker.Name)

	defer func() {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		if err != nil {
			t.explain(clean, broker)
		}
		err = errors.Join(err, t.remove(clean, broker))
	}()

	url, err := t.waitReady(ctx, broker)
	if err != nil {
		return err
	}
	return t.Exchange(ctx, url, t.say)
}

// smallBroker is the least that is a whole Broker. It is open to whoever reaches it while it lives.
func smallBroker(namespace string) *v1alpha1.Broker {
	one, size := int32(1), resource.MustParse("1Gi")
	return &v1alpha1.Broker{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "selftest-", Namespace: namespace},
		Spec: v1alpha1.BrokerSpec{
			Replicas: &one,
			Profile:  v1alpha1.ProfileSmall,
			Storage:  v1alpha1.StorageSpec{Size: size},
			Coordination: v1alpha1.CoordinationSpec{Managed: v1alpha1.ManagedCoordination{
				Replicas: one,
				Storage:  v1alpha1.CoordinationStorageSpec{Size: size},
			}},
			DeletionPolicy: v1alpha1.VolumesDeleted,
		},
	}
}

// waitReady returns the endpoint of the Broker once it is Ready, and says what it waits for
// meanwhile.
func (t *Test) waitReady(ctx context.Context, made *v1alpha1.Broker) (url string, err error) {
	last := ""
	err = t.poll(ctx, func() (bool, error) {
		var broker v1alpha1.Broker
		if err := t.Client.Get(ctx, client.ObjectKeyFromObject(made), &broker); err != nil {
			return false, err
		}
		current := broker.Status.ObservedGeneration == broker.Generation
		if c := meta.FindStatusCondition(broker.Status.Conditions, v1alpha1.ConditionStalled); current && c != nil && c.Status == metav1.ConditionTrue {
			return false, fmt.Errorf("it is Stalled, %s: %s", c.Reason, c.Message)
		}
		ready := meta.FindStatusCondition(broker.Status.Conditions, v1alpha1.ConditionReady)
		if ready == nil {
			return false, nil
		}
		if now := fmt.Sprintf("Ready=%s %s: %s", ready.Status, ready.Reason, ready.Message); now != last {
			last = now
			t.say("Broker %s", now)
		}
		url = broker.Status.Endpoint
		return current && ready.Status == metav1.ConditionTrue && url != "", nil
	})
	if err == nil {
		return url, nil
	}
	if last == "" {
		return "", fmt.Errorf("wait for Broker %s/%s: nothing wrote its status; does the operator run, and does it watch this namespace? %w", made.Namespace, made.Name, err)
	}
	return "", fmt.Errorf("wait for Broker %s/%s to be Ready: %w", made.Namespace, made.Name, err)
}

// remove deletes the Broker and waits until its pods and volume claims are gone; claims that stay
// are deleted here, since a test must leave nothing behind.
func (t *Test) remove(ctx context.Context, broker *v1alpha1.Broker) error {
	if err := t.Client.Delete(ctx, broker); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete Broker %s/%s: %w; it is left behind", broker.Namespace, broker.Name, err)
	}
	deleted := map[string]bool{}
	left := ""
	err := t.poll(ctx, func() (bool, error) {
		pods, claims, err := t.parts(ctx, broker)
		if err != nil {
			return false, err
		}
		left = fmt.Sprintf("%d pods and %d volume claims", len(pods), len(claims))
		if len(pods) > 0 {
			return false, nil
		}
		for _, claim := range claims {
			if deleted[claim.Name] || claim.DeletionTimestamp != nil {
				continue
			}
			if err := t.Client.Delete(ctx, &claim); err != nil && !apierrors.IsNotFound(err) {
				return false, err
			}
			deleted[claim.Name] = true
		}
		return len(claims) == 0, nil
	})
	if err != nil {
		return fmt.Errorf("remove Broker %s/%s: %s are left behind: %w", broker.Namespace, broker.Name, left, err)
	}
	t.say("removed Broker %s/%s, its pods and its volumes", broker.Namespace, broker.Name)
	return nil
}

// parts are the pods and volume claims of the Broker. They go by name: the Broker's is generated,
// so nothing else begins with it.
func (t *Test) parts(ctx context.Context, broker *v1alpha1.Broker) (pods []corev1.Pod, claims []corev1.PersistentVolumeClaim, err error) {
	var podList corev1.PodList
	if err := t.Client.List(ctx, &podList, client.InNamespace(broker.Namespace)); err != nil {
		return nil, nil, err
	}
	for _, pod := range podList.Items {
		if strings.HasPrefix(pod.Name, broker.Name+"-") {
			pods = append(pods, pod)
		}
	}
	var claimList corev1.PersistentVolumeClaimList
	if err := t.Client.List(ctx, &claimList, client.InNamespace(broker.Namespace)); err != nil {
		return nil, nil, err
	}
	for _, claim := range claimList.Items {
		if strings.HasPrefix(claim.Name, "data-"+broker.Name+"-") {
			claims = append(claims, claim)
		}
	}
	return pods, claims, nil
}

// explain prints what a person needs to see before the Broker that failed is removed.
func (t *Test) explain(ctx context.Context, made *v1alpha1.Broker) {
	var broker v1alpha1.Broker
	if err := t.Client.Get(ctx, client.ObjectKeyFromObject(made), &broker); err != nil {
		t.say("Broker %s/%s can't be read: %v", made.Namespace, made.Name, err)
		return
	}
	if len(broker.Status.Conditions) == 0 {
		t.say("Broker %s has no conditions", broker.Name)
	}
	for _, c := range broker.Status.Conditions {
		t.say("  condition %s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message)
	}
	pods, _, err := t.parts(ctx, made)
	if err != nil {
		t.say("  its pods can't be listed: %v", err)
	}
	for _, pod := range pods {
		t.say("  pod %s: %s", pod.Name, podState(&pod))
	}
}

// podState is the first thing that keeps a pod from being ready, in the cluster's own words.
func podState(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status != corev1.ConditionTrue {
			return fmt.Sprintf("%s, %s: %s", pod.Status.Phase, c.Reason, c.Message)
		}
	}
	for _, c := range pod.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil {
			return fmt.Sprintf("%s, %s: %s", pod.Status.Phase, w.Reason, w.Message)
		}
		if s := c.State.Terminated; s != nil {
			return fmt.Sprintf("%s, %s, exit code %d, %d restarts", pod.Status.Phase, s.Reason, s.ExitCode, c.RestartCount)
		}
		if !c.Ready {
			return fmt.Sprintf("%s, not ready, %d restarts", pod.Status.Phase, c.RestartCount)
		}
	}
	return string(pod.Status.Phase)
}

// poll looks until done or an error that time does not heal; a failing API server is looked at
// again.
func (t *Test) poll(ctx context.Context, look func() (done bool, err error)) error {
	tick := time.NewTicker(t.Poll)
	defer tick.Stop()
	for {
		done, err := look()
		if done {
			return nil
		}
		if err != nil && !passing(err) {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		}
	}
}

func passing(err error) bool {
	if network := net.Error(nil); errors.As(err, &network) {
		return true
	}
	return apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err) || apierrors.IsConflict(err)
}

func (t *Test) say(format string, args ...any) {
	fmt.Fprintf(t.Out, "%6.1fs  %s\n", time.Since(t.began).Seconds(), fmt.Sprintf(format, args...))
}
