package observe

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

func isReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// readySince returns when a ready pod became ready.
func readySince(pod *corev1.Pod) time.Time {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// isStarted reports whether every container runs and its startup probe has succeeded.
func isStarted(pod *corev1.Pod) bool {
	for _, c := range pod.Status.ContainerStatuses {
		if c.Started == nil || !*c.Started || c.State.Running == nil {
			return false
		}
	}
	return len(pod.Status.ContainerStatuses) > 0
}

// trouble returns why a pod is not ready, in the words of the scheduler, the kubelet or the
// process.
func trouble(pod *corev1.Pod) string {
	if pod.DeletionTimestamp != nil {
		return "is stopping"
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return "can't be scheduled: " + short(c.Message)
		}
	}
	for _, c := range pod.Status.ContainerStatuses {
		last := ""
		if t := c.LastTerminationState.Terminated; t != nil {
			last = fmt.Sprintf(", after exit code %d", t.ExitCode)
			if t.Message != "" {
				last += ": " + short(t.Message)
			}
		}
		switch {
		case c.State.Waiting != nil && c.State.Waiting.Reason != "ContainerCreating" && c.State.Waiting.Reason != "PodInitializing":
			// The number of attempts and the time to the next one change all the time, and help
			// nobody.
			if last != "" {
				return c.State.Waiting.Reason + last
			}
			return c.State.Waiting.Reason + ": " + short(c.State.Waiting.Message)
		case c.State.Terminated != nil:
			return fmt.Sprintf("exited with code %d", c.State.Terminated.ExitCode)
		case c.State.Running != nil && c.Started != nil && !*c.Started:
			return "is starting" + last
		case c.State.Running != nil:
			return "runs, and says that it is not ready" + last
		}
	}
	return "is being made"
}

// short returns a foreign message as one line of bounded length.
func short(message string) string {
	const limit = 200
	message = strings.Join(strings.Fields(message), " ")
	if len(message) > limit {
		message = strings.ToValidUTF8(message[:limit], "") + "…"
	}
	return message
}
