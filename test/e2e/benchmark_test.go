//go:build e2e

package e2e

import (
	"regexp"
	"strings"
	"testing"
)

// benchmark runs the sample Job as a user does, with the image under test.
func benchmark(t *testing.T, e *environment) {
	log := mustRun(t, "bash", "-c", ". hack/lib/install.sh && run_benchmark "+namespace+" "+e.image)
	t.Log("\n" + log)
	for _, column := range []string{"p50", "p95", "p99", "p99.9", "max", "lost"} {
		if !strings.Contains(log, column) {
			t.Errorf("the Job printed no %s", column)
		}
	}
	if !regexp.MustCompile(`(?m)\d[\d.]*\s?(µs|us|ms)`).MatchString(log) {
		t.Error("the Job printed no latency")
	}
}
