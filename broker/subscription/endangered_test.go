package subscription

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/internal/testutil"
)

func TestASubscriptionSaysThatItFallsBehindRetention(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		w.shard.publish("o", "o", "o", "o", "o", "o", "o", "o", "o", "o")
		w.declare("billing", 1, earliest())
		s := w.find("billing")
		says := func(policy log.Retention, want string) {
			t.Helper()
			i := s.Info()
			if got := s.endangeredBy(&i, policy); want == "" && got != "" || !strings.Contains(got, want) {
				t.Errorf("by %+v: %q, want %q", policy, got, want)
			}
		}
		ten, hour := log.Retention{Messages: 10}, log.Retention{Age: time.Hour}
		says(ten, "has sequence 1: it and later ones are 10 of the 10 messages that are kept")
		says(hour, "")
		says(log.Retention{}, "")
		time.Sleep(55 * time.Minute)
		says(hour, "has sequence 1: it is deleted by its age in 5m0s")
		s.Pull(pull("a", 10))
		w.expect("billing", "a", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10")
		says(ten, "has sequence 1") // delivered, and not acknowledged
		for offset := uint64(1); offset <= 10; offset++ {
			if err := w.ackNow(s, offset, Done); err != nil {
				t.Fatal(err)
			}
			if offset == 1 {
				says(ten, "has sequence 2") // the danger ends behind the oldest fifth
			} else {
				says(ten, "")
			}
		}
		says(hour, "")
	})
}

// TestFallingBehindEndsWithADistance: at the limit it neither comes nor goes with each change.
func TestFallingBehindEndsWithADistance(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		w.shard.publishN("o", 100)
		w.declare("billing", 1, earliest())
		s := w.find("billing")
		s.Pull(pull("a", 100))
		synctest.Wait()
		var changes []uint64
		was := false
		for step := range uint64(60) { // from one to another, its distance goes to and fro
			if step%2 == 0 {
				w.shard.publish("o", "o")
			} else {
				for range 3 {
					testutil.Must(t, w.ackNow(s, s.Info().FloorOffset+1, Done))
				}
			}
			i := s.Info()
			if is := s.endangeredBy(&i, log.Retention{Messages: 100}) != ""; is != was {
				was, changes = is, append(changes, step)
			}
		}
		if len(changes) != 2 {
			t.Errorf("it changed at %v", changes)
		}
	})
}
