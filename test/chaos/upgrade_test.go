//go:build e2e && linux

package chaos

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestAnUpgradeLosesNothing: a world starts with the version before (CHAOS_OLD_PROGRAM) and is
// upgraded to this version under load, as the operator does it: the coordinators one by one, then
// the brokers, each when all replicas are in sync. etcd has users and asks for them from the start,
// as after a version was taken back. After each upgraded broker, brokers of both versions and
// coordinators are killed.
//
// All the while there are clients of live queries (queries_test.go). If the version before has none
// (CHAOS_OLD_HAS), its brokers refuse these clients, and each query is opened once a broker of this
// version serves it. Otherwise all are open from the beginning, and go on at brokers of both
// versions. If it has Views, a recount judges them at the end.
//
// The logs of a version without live queries are of an earlier format. At the end, that version
// refuses a volume that this one has used, and leaves it unharmed.
func TestAnUpgradeLosesNothing(t *testing.T) {
	old := os.Getenv("CHAOS_OLD_PROGRAM")
	if old == "" {
		t.Fatal("CHAOS_OLD_PROGRAM names no carillon of the version before: call test/chaos/upgrade")
	}
	program, err := binary()
	testutil.Must(t, err)
	t.Logf("CHAOS_SEED=%d", seed)
	options := usually(old, noBroker)
	has := strings.Fields(os.Getenv("CHAOS_OLD_HAS"))
	queries := slices.Contains(has, "queries")
	options.views = slices.Contains(has, "views")
	w := begin(t, options)
	s, err := w.startSwitches(t.Context(), queries)
	testutil.Must(t, err)
	t.Cleanup(s.end)
	planner := NewPlanner(seed, []Kind{Kill, Etcd})
	rounds := setting(t, "CHAOS_ROUNDS", 2, strconv.Atoi)
	suffer := func() {
		t.Helper()
		for range rounds {
			round := planner.Next()
			w.note("round: %s", round)
			if err := w.suffer(round); err != nil {
				t.Fatalf("after %s: %v", round, err)
			}
		}
		testutil.Must(t, s.goesOn())
	}
	testutil.Must(t, w.restrict())
	suffer()
	was, err := w.memberAt(0)
	testutil.Must(t, err)

	for n := brokers; n < clients; n++ {
		testutil.Must(t, w.processes[n].becomes(program))
		testutil.Must(t, w.whole())
	}
	order := rand.New(rand.NewPCG(seed, 2)).Perm(founders)
	for _, n := range order {
		testutil.Must(t, w.processes[n].becomes(program))
		testutil.Must(t, w.recovers())
		is, err := w.memberAt(n)
		testutil.Must(t, err)
		if is.Version == was.Version {
			t.Fatalf("%s is of version %s, as before", nodeName(n), is.Version)
		}
		w.note("%s is of version %s", nodeName(n), is.Version)
		s.serve(n)
		suffer()
	}
	w.processes[founders].args[0] = program // this broker joins in no round
	if !queries {
		testutil.Must(t, w.refusesOlder(order[0], old, program))
		testutil.Must(t, w.recovers())
	}
	testutil.Must(t, w.restricted())
	for _, err := range append(s.judge(queries), w.judge()...) {
		t.Error(err)
	}
	t.Logf("%s; %s; %s", w, w.swappers, w.readers)
	t.Logf("live queries: %s", s)
}

// becomes stops the process in order, and starts another version of it.
func (p *process) becomes(program string) error {
	p.down.Lock()
	defer p.down.Unlock()
	if err := p.stop(); err != nil {
		return err
	}
	p.args[0] = program
	return p.start()
}

// refusesOlder starts the old version on a volume that the new one has used, waits until it has
// refused the log of each shard by name, and starts the new one again.
func (w *world) refusesOlder(n int, old, program string) error {
	p := w.processes[n]
	logs, err := os.ReadDir(p.volume.Path() + "/data/shards")
	if err != nil {
		return err
	}
	before, err := os.ReadFile(p.logFile.Name())
	if err != nil {
		return err
	}
	if err := p.becomes(old); err != nil {
		return err
	}
	err = within(patience, "version 018b7c1 refuses the logs of this one", func() error {
		all, err := os.ReadFile(p.logFile.Name())
		if err != nil {
			return err
		}
		said := all[len(before):]
		for _, log := range logs {
			if strings.HasSuffix(log.Name(), ".state") { // it is opened after the log of records, which was refused
				continue
			}
			refused := false
			for line := range bytes.Lines(said) {
				refused = refused || bytes.Contains(line, []byte(log.Name())) && bytes.Contains(line, []byte("is newer than this broker knows"))
			}
			if !refused {
				return fmt.Errorf("nothing is said of %s: %s", log.Name(), said[:min(len(said), 4000)])
			}
		}
		return nil
	})
	if backErr := p.becomes(program); err == nil {
		err = backErr
	}
	return err
}
