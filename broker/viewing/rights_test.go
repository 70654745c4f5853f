package viewing

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-mq/carillon/broker/trigger"
	"github.com/carillon-mq/carillon/broker/view"
)

// TestARoundEndsWithTheRight: also one that has many results, or alerts, to write.
func TestARoundEndsWithTheRight(t *testing.T) {
	whole := &Declared{Name: "means", Made: 3, Alerts: map[string]string{"high": "alerts"}, Spec: view.Spec{
		By: "json.k", Values: map[string]string{"sum": "sum(json.n)"},
		Triggers: []trigger.Spec{{Name: "high", When: "sum > 30.0"}},
	}}
	for name, of := range map[string]*Declared{"windows": tumbling(0, 0), "present": whole} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const keys = 3 * rowsAtOnce
				w := newWorld(t, 1, of, 1)
				defer w.close()
				s := w.services[0]
				lost := func() bool { return s.written.Load()+s.alerts.Load() > 0 }
				s.MayRead = func(string, string, []string) bool { return !lost() }
				at := time.Now().UnixMilli()
				for key := range keys {
					w.publish(0, event{at, fmt.Sprint("key", key), 40})
				}
				w.publish(0, event{at + 5000, "later", 1})
				w.lead(w.topics["in"][0], 0)
				pass(time.Minute)
				if n := s.written.Load() + s.alerts.Load(); n == 0 || n > 2*rowsAtOnce {
					t.Errorf("%d results and alerts of %d keys are written", n, keys)
				}
				all := s.Reports(w.topics["in"][0].now)
				if len(all) != 1 || !strings.Contains(all[0].Trouble, "may not subscribe to all that it reads") {
					t.Errorf("the report is %+v", all)
				}
			})
		})
	}
}
