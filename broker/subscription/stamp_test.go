package subscription

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/log"
)

// stamped is a record of a subject that had these attributes when it was stored.
func stamped(attributes string) log.Record {
	r := record("orders.eu", `{"k": 1}`)
	r.Stamp = []byte(attributes)
	return r
}

// stampedStories are what conditions find in two times the same four records.
var stampedStories = []struct {
	where, want string
	failed      uint64
}{
	{`attributes.room == "410"`, "1 4 5 8", 2},
	{`attributes.room == "410" && has(attributes.floor)`, "1 5", 0},
	{`has(attributes.floor) && attributes.floor > 3`, "1 3 5 7", 0},
	{`attributes.floor > 3`, "1 3 5 7", 4},
	{`!("room" in attributes)`, "2 6", 0},
	{`attributes.exists(k, k == "floor") && json.k == 1`, "1 3 5 7", 0},
	{`size(attributes) == 0`, "2 6", 0},
}

// TestAttributesAreThoseOfTheRecord: by conditions that a hash finds, quick ones and others, at the
// tail and behind it, and what lacks an attribute is counted as any record that can't be judged.
func TestAttributesAreThoseOfTheRecord(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		records := func() {
			w.shard.append(stamped(`{"floor":4,"room":"410"}`), stamped(""), stamped(`{"floor":4,"room":"411"}`), stamped(`{"room":"410"}`))
		}
		records()
		for i, c := range stampedStories {
			w.declare(fmt.Sprint("s", i), int64(i+1), where(c.where))
			w.find(fmt.Sprint("s", i)).Pull(pull("a", 9))
		}
		synctest.Wait()
		records() // at the tail
		for i, c := range stampedStories {
			name := fmt.Sprint("s", i)
			w.expect(name, "a", strings.Fields(c.want)...)
			if is := w.find(name).Info(); is.Unjudged != c.failed {
				t.Errorf("%s: %d could not be judged, want %d (%s)", c.where, is.Unjudged, c.failed, is.UnjudgedWhy)
			}
		}
	})
}

// TestRedeliveryDecidesByWhatWasStored: whatever the attributes are now, for this leader and the
// next one. Nothing here knows any attributes but those of the log.
func TestRedeliveryDecidesByWhatWasStored(t *testing.T) {
	story(t, func(t *testing.T, w *world) {
		w.declare("billing", 1, where(`attributes.room == "410"`))
		s := w.find("billing")
		s.Pull(pull("a", 9))
		w.shard.append(stamped(`{"room":"410"}`), stamped(`{"room":"411"}`), stamped(`{"room":"410"}`))
		w.expect("billing", "a", "1", "3")
		if err := w.ackNow(s, 1, Done); err != nil {
			t.Fatal(err)
		}
		w.restart()
		w.shard.append(stamped(`{"room":"409"}`), stamped(`{"room":"410"}`))
		w.find("billing").Pull(pull("b", 9))
		w.expect("billing", "b", "5")
		time.Sleep(defaultAckWait + time.Second)
		w.expect("billing", "b", "3 x2", "5 x2")
	})
}

// TestAConditionWithAttributesNeedsBrokersThatStoreThem names the feature.
func TestAConditionWithAttributesNeedsBrokersThatStoreThem(t *testing.T) {
	for text, want := range map[string]coordination.Feature{
		`attributes.a == 1`: coordination.FeatureStamps, `json.a == 1`: coordination.FeatureConditions, `json.a ==`: coordination.FeatureConditions,
	} {
		spec := where(text)
		if got, _ := spec.ConditionNeeds(); got != want {
			t.Errorf("%s needs %s, want %s", text, got, want)
		}
	}
	if why := unsupported(&coordination.SubscriptionSpec{Where: `attributes.a == 1`}); why != "" {
		t.Error(why)
	}
}
