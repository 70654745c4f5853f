package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-mq/carillon/broker/coordination"
)

const myURL = "https://c-0:2380"

func up(name string) listedMember {
	return listedMember{ID: 1, Name: name, PeerURLs: []string{"https://" + name + ":2380"}, ClientURLs: []string{"https://" + name + ":2379"}}
}

func neverUp(name string) listedMember {
	m := up(name)
	m.ClientURLs = nil
	return m
}

func TestHowAnEmptyVolumeBegins(t *testing.T) {
	added := listedMember{ID: 9, PeerURLs: []string{myURL}, IsLearner: true}
	copying := up("c-0")
	copying.IsLearner = true
	for name, test := range map[string]struct {
		existed bool
		lists   [][]listedMember
		want    way
	}{
		"the first of all":                   {false, nil, form},
		"the others are forming too":         {false, [][]listedMember{{neverUp("c-0"), neverUp("c-1"), neverUp("c-2")}}, form},
		"another does not know anybody yet":  {false, [][]listedMember{{}}, form},
		"the others formed without waiting":  {false, [][]listedMember{{neverUp("c-0"), up("c-1"), up("c-2")}}, form},
		"it was up before":                   {false, [][]listedMember{{up("c-0"), up("c-1"), up("c-2")}}, rejoin},
		"only one of the others knows that":  {false, [][]listedMember{{neverUp("c-0"), up("c-1")}, {up("c-0"), up("c-1")}}, rejoin},
		"removed, then this process died":    {false, [][]listedMember{{up("c-1"), up("c-2")}}, rejoin},
		"added, then this process died":      {false, [][]listedMember{{added, up("c-1"), up("c-2")}}, rejoin},
		"copying, then the volume went":      {false, [][]listedMember{{copying, up("c-1"), up("c-2")}}, rejoin},
		"existed, nobody answers":            {true, nil, await},
		"existed, all others are empty too":  {true, [][]listedMember{{neverUp("c-0"), neverUp("c-1")}}, await},
		"existed, it never came up":          {true, [][]listedMember{{neverUp("c-0"), up("c-1"), up("c-2")}}, rejoin},
		"existed, it was up before":          {true, [][]listedMember{{up("c-0"), up("c-1")}}, rejoin},
		"existed under the address of today": {true, [][]listedMember{{up("c-1"), {Name: "old", PeerURLs: []string{myURL}, ClientURLs: []string{"x"}}}}, rejoin},
	} {
		if got, why := decide("c-0", myURL, test.existed, test.lists); got != test.want || why == "" {
			t.Errorf("%s: decided %d because %q, want %d", name, got, why, test.want)
		}
	}
}

// fakeQuorum is a membership whose steps can fail, before or after they took effect.
type fakeQuorum struct {
	members []coordination.Member
	next    uint64
	steps   int
	failAt  int // the step that fails; 0: none
	after   bool
}

var errCut = errors.New("cut")

func (q *fakeQuorum) step(effect func()) error {
	q.steps++
	if q.steps == q.failAt && !q.after {
		return errCut
	}
	effect()
	if q.steps == q.failAt {
		return errCut
	}
	return nil
}

func (q *fakeQuorum) Members(context.Context) (members []coordination.Member, err error) {
	err = q.step(func() { members = slices.Clone(q.members) })
	return members, err
}

func (q *fakeQuorum) RemoveMember(_ context.Context, id uint64) error {
	return q.step(func() {
		q.members = slices.DeleteFunc(q.members, func(m coordination.Member) bool { return m.ID == id })
	})
}

func (q *fakeQuorum) AddLearner(_ context.Context, url string) (added coordination.Member, err error) {
	err = q.step(func() {
		q.next++
		added = coordination.Member{ID: q.next, PeerURLs: []string{url}, Learner: true}
		q.members = append(q.members, added)
	})
	return added, err
}

// TestAReadmissionIsFinishedAfterAnyStep: after an attempt that died at any step, the next one ends
// with exactly one new learner beside the two others.
func TestAReadmissionIsFinishedAfterAnyStep(t *testing.T) {
	for failAt := range 6 {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("step %d, after %v", failAt, after), func(t *testing.T) {
				q := &fakeQuorum{next: 100, failAt: failAt, after: after}
				for i := range 3 {
					name := fmt.Sprintf("c-%d", i)
					q.members = append(q.members, coordination.Member{ID: uint64(i + 1), Name: name, PeerURLs: []string{"https://" + name + ":2380"}})
				}
				var cluster string
				for attempt := 0; cluster == ""; attempt++ {
					if attempt == 3 {
						t.Fatal("no attempt came to its end")
					}
					got, err := readmit(t.Context(), q, "c-0", myURL)
					if err != nil && !errors.Is(err, errCut) {
						t.Fatal(err)
					}
					if err == nil {
						cluster = got
					}
				}
				if len(q.members) != 3 || q.members[2].ID <= 100 || !q.members[2].Learner || q.members[0].ID != 2 || q.members[1].ID != 3 {
					t.Fatalf("members are %+v", q.members)
				}
				items := strings.Split(cluster, ",")
				slices.Sort(items)
				want := []string{"c-0=" + myURL, "c-1=https://c-1:2380", "c-2=https://c-2:2380"}
				if !slices.Equal(items, want) {
					t.Errorf("starts with %v, want %v", items, want)
				}
			})
		}
	}
}

func TestInvalidConfigurationsAreRefused(t *testing.T) {
	good := Config{
		Name: "c-0", DataDir: "d", TLSDir: "t", ClientListen: ":2379", PeerListen: "0.0.0.0:2380", HTTPListen: ":8223",
		AdvertiseHost: "c-0.cs", InitialCluster: "c-1=https://c-1.cs:2380,c-0=https://c-0.cs:2380", ClusterToken: "x",
	}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Config){
		"--name":            func(c *Config) { c.Name = "" },
		"--data":            func(c *Config) { c.DataDir = "" },
		"--tls-dir":         func(c *Config) { c.TLSDir = "" },
		"--cluster-token":   func(c *Config) { c.ClusterToken = "" },
		"--client-listen":   func(c *Config) { c.ClientListen = "2379" },
		"--peer-listen":     func(c *Config) { c.PeerListen = "localhost:2380" },
		"--http-listen":     func(c *Config) { c.HTTPListen = "" },
		"--advertise-host":  func(c *Config) { c.AdvertiseHost = "elsewhere" },
		"--initial-cluster": func(c *Config) { c.InitialCluster = "c-0=http://c-0.cs:2380" },
		"must hold --name":  func(c *Config) { c.InitialCluster = "c-1=https://c-1.cs:2380" },
		"there twice":       func(c *Config) { c.InitialCluster += ",c-0=https://c-2.cs:2380" },
	} {
		cfg := good
		spoil(&cfg)
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("error is %v; want one that says %q", err, name)
		}
	}
}
