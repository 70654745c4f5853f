package coordination

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/carillon-mq/carillon/broker/attribute"
	"github.com/carillon-mq/carillon/internal/testutil"
)

func sets(of ...string) map[string]attribute.Set {
	all := map[string]attribute.Set{}
	for i := 0; i < len(of); i += 2 {
		set, err := attribute.SetFromJSON([]byte(of[i+1]))
		if err != nil {
			panic(err)
		}
		all[of[i]] = set
	}
	return all
}

// TestManifestsDeclareAttributes: each declaration makes etcd like that, and touches nothing that
// others have set. One that is there already writes nothing.
func TestManifestsDeclareAttributes(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	a, main := etcd.attributes(), etcd.open()
	ctx := context.Background()
	declare := func(writes bool, of ...string) {
		t.Helper()
		before := revisionOfEtcd(t, main)
		if err := main.DeclareAttributes(ctx, "sensors", sets(of...)); err != nil {
			t.Fatal(err)
		}
		if made := revisionOfEtcd(t, main) - before; made > 1 || (made == 1) != writes {
			t.Errorf("%v made %d transactions", of, made)
		}
	}
	declare(false)
	a.set(attribute.Change{Subject: "s.1", Set: attribute.Set{"mine": attribute.Bool(true), "room": attribute.String("1")}, Holder: &attribute.Holder{Broker: "a", Process: 1, Connection: 7}})
	declare(true, "s.1", `{"room":"410","floor":4}`, "s.2", `{"room":"411"}`)
	declare(false, "s.1", `{"room":"410","floor":4}`, "s.2", `{"room":"411"}`)
	a.sees("s.1", `{"floor":4,"mine":true,"room":"410"}`)
	a.sees("s.2", `{"room":"411"}`)
	if h := a.Store().Get("s.1").Holder; h != (attribute.Holder{}) {
		t.Errorf("what a manifest declares is held by %+v", h)
	}
	a.set(room("s.2", "by others"))
	declare(true, "s.1", `{"room":"410","floor":4}`, "s.2", `{"room":"411"}`)
	a.sees("s.2", `{"room":"411"}`)
	declare(true, "s.1", `{"floor":4}`, "s.3", `{"x":1}`)
	a.sees("s.1", `{"floor":4,"mine":true}`)
	a.sees("s.2", "")
	a.sees("s.3", `{"x":1}`)
	if err := main.DeclareAttributes(ctx, "other", sets("o", `{"x":1}`)); err != nil {
		t.Fatal(err)
	}
	declare(true)
	declare(false)
	a.sees("s.1", `{"mine":true}`)
	a.sees("s.3", "")
	a.sees("o", `{"x":1}`)
	if got, err := main.etcd.Get(ctx, main.declaredKey("sensors")); err != nil || got.Count != 0 {
		t.Errorf("what is noted stays: %v, %v", got, err)
	}
}

// TestDeclarationsAreRefusedWhole: of what can't be, nothing is written.
func TestDeclarationsAreRefusedWhole(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	a, main := etcd.attributes(), etcd.open()
	ctx := context.Background()
	a.set(attribute.Change{Subject: "s", Set: attribute.Set{"x": attribute.String(strings.Repeat("x", 3000))}})
	many := map[string]attribute.Set{}
	for i := range MaxDeclared + 1 {
		many[fmt.Sprint("s.", i)] = attribute.Set{"x": attribute.Bool(true)}
	}
	before := revisionOfEtcd(t, main)
	for _, want := range []map[string]attribute.Set{
		many, sets("a", `{"x":1}`, "s", `{"y":"`+strings.Repeat("y", 3000)+`"}`), sets("a", `{"x":1}`, "b.*", `{"x":1}`),
	} {
		as[*InvalidError](t, main.DeclareAttributes(ctx, "sensors", want))
	}
	if made := revisionOfEtcd(t, main) - before; made != 0 {
		t.Errorf("%d transactions were made", made)
	}
	delete(many, "s.0")
	if err := main.DeclareAttributes(ctx, "sensors", many); err != nil {
		t.Error(err)
	}
	next := map[string]attribute.Set{}
	for i := range MaxDeclared {
		next[fmt.Sprint("t.", i)] = attribute.Set{"x": attribute.Bool(true)}
	}
	if err := main.DeclareAttributes(ctx, "sensors", next); err != nil {
		t.Errorf("as many as there may be, in place of as many others: %v", err)
	}
	a.sees("t.0", `{"x":true}`)
	a.sees("s.1", "")
}

// TestDeclarationsMergeWithChanges: others change the same subjects at the same time.
func TestDeclarationsMergeWithChanges(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	a, main := etcd.attributes(), etcd.open()
	const each = 20
	var running sync.WaitGroup
	running.Go(func() {
		for i := range each {
			a.set(attribute.Change{Subject: "s", Set: attribute.Set{fmt.Sprint("by.", "client.", i): attribute.Bool(true)}})
		}
	})
	for i := range each {
		if err := main.DeclareAttributes(context.Background(), "sensors", map[string]attribute.Set{"s": {fmt.Sprint("declared.", i): attribute.Bool(true)}}); err != nil {
			t.Error(err)
		}
	}
	running.Wait()
	got, err := (&Attributes{c: main}).entries(context.Background(), []string{"s"})
	e := got["s"]
	if err != nil || len(e.Set()) != each+1 || !strings.Contains(e.Text, fmt.Sprintf(`"declared.%d":true`, each-1)) {
		t.Errorf("of %d changes and one declaration, %s is there: %v", each, e.Text, err)
	}
}

// TestManifestsDeclareNoMoreWhereThereIsNoRoom: the controller tells whether there is, since who
// declares does not follow all attributes. What needs no more room is declared in any case.
func TestManifestsDeclareNoMoreWhereThereIsNoRoom(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	a, main := etcd.attributes(), etcd.open()
	ctx, cancel := context.WithCancel(context.Background())
	var telling sync.WaitGroup
	defer telling.Wait()
	defer cancel()
	a.most.bytes = largestDeclared + 1500
	declare := func(of ...string) error { return main.DeclareAttributes(ctx, "sensors", sets(of...)) }
	const large = `{"x":"a value of some bytes","y":"another one of some bytes"}`
	if err := declare("s.1", large, "s.2", large); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		a.set(attribute.Change{Subject: fmt.Sprint("t.", i), Set: attribute.Set{"x": attribute.String(strings.Repeat("x", 900))}})
	}
	var controls atomic.Bool
	telling.Go(func() { a.TellFull(ctx, controls.Load) })
	if err := declare("s.1", large, "s.2", large, "s.3", large); err != nil {
		t.Errorf("no controller has told that there is no room: %v", err)
	}
	controls.Store(true)
	testutil.EventuallyTrue(t, "a refusal", func() bool {
		err := declare("s.1", large, "s.2", large, "s.3", large, "s.4", large)
		if err == nil { // it was made, and is taken back
			err = declare("s.1", large, "s.2", large, "s.3", large)
		}
		return errors.As(err, new(*InvalidError))
	})
	if err := declare("s.1", large, "s.2", `{"x":"less"}`); err != nil {
		t.Errorf("what takes less room is refused: %v", err)
	}
	if err := declare("s.1", large, "s.2", `{"x":"none"}`); err != nil {
		t.Errorf("what takes as much room is refused: %v", err)
	}
	before := revisionOfEtcd(t, main)
	as[*InvalidError](t, declare("s.1", large, "s.2", large))
	if err := declare("s.1", large, "s.2", `{"x":"none"}`); err != nil {
		t.Errorf("what is there already is refused: %v", err)
	}
	if made := revisionOfEtcd(t, main) - before; made != 0 {
		t.Errorf("%d transactions were made while nothing changed", made)
	}
	a.set(attribute.Change{Subject: "t.0", Set: attribute.Set{"x": attribute.Bool(true)}})
	testutil.EventuallyTrue(t, "room again", func() bool { return declare("s.1", large, "s.2", large) == nil })
}
