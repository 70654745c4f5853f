package pki

import (
	"crypto/rand"
	"maps"
	"strings"
	"testing"
	"time"
)

func ensureRoots(t *testing.T, data map[string][]byte, separate bool, now time.Time) (*Roots, map[string][]byte) {
	t.Helper()
	roots, data, err := EnsureRoots("main-ca", data, separate, now, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return roots, data
}

// leavesOf returns the certificate of each kind, as they follow those before.
func leavesOf(t *testing.T, roots *Roots, before map[Kind]map[string][]byte, now time.Time) map[Kind]map[string][]byte {
	t.Helper()
	leaves := map[Kind]map[string][]byte{}
	for _, kind := range Kinds {
		leaves[kind] = leafOf(t, roots.Of(kind), before[kind], now, "a")
	}
	return leaves
}

// TestACertificateIsOfOneKind: none is taken for a connection of another kind, on either side.
func TestACertificateIsOfOneKind(t *testing.T) {
	roots, data := ensureRoots(t, nil, true, start)
	if roots.Phase() != Separate {
		t.Fatalf("new roots are %s", roots.Phase())
	}
	leaves := leavesOf(t, roots, nil, start)
	for _, server := range Kinds {
		for _, client := range Kinds {
			if err := meet(t, leaves[server], leaves[client], "a", start); (err == nil) != (server == client) {
				t.Errorf("a client with a certificate of %s at a server of %s: %v", client, server, err)
			}
		}
	}
	for _, later := range []time.Duration{0, 50 * 24 * time.Hour} {
		if _, kept := ensureRoots(t, data, true, start.Add(later)); !equal(kept, data) {
			t.Errorf("the CAs changed after %v", later)
		}
	}
}

// TestNobodyIsRefusedWhileTheRootsBecomeSeparate: pods have the files of a step at different times,
// and those of two steps that follow each other take each other's certificates. Coordinators go
// from a step to the next by a restart, which is a time, too.
func TestNobodyIsRefusedWhileTheRootsBecomeSeparate(t *testing.T) {
	roots, data := ensureRoots(t, nil, false, start)
	before := leavesOf(t, roots, nil, start)
	first := before
	trust := roots.Trust()
	if again, kept := ensureRoots(t, data, false, start); again.Phase() != Shared || !equal(kept, data) {
		t.Fatal("roots that are to stay shared changed")
	}
	for _, step := range []struct {
		phase    Phase
		restarts bool // coordinators read their CAs again
		renewed  bool // certificates
	}{{Announced, true, false}, {Signing, false, true}, {Separate, true, false}} {
		data = Advance(data)
		roots, data = ensureRoots(t, data, true, start)
		if roots.Phase() != step.phase {
			t.Fatalf("the phase is %s, want %s", roots.Phase(), step.phase)
		}
		// The operator may die here, and the next one goes on with the same.
		if again, kept := ensureRoots(t, data, true, start); again.Phase() != step.phase || !equal(kept, data) {
			t.Fatalf("%s is not stored", step.phase)
		}
		after := leavesOf(t, roots, before, start)
		if restarts := roots.Trust() != trust; restarts != step.restarts {
			t.Errorf("%s: coordinators restart: %v, want %v", step.phase, restarts, step.restarts)
		}
		for _, kind := range Kinds {
			for _, pair := range [][2]map[string][]byte{{before[kind], after[kind]}, {after[kind], before[kind]}, {after[kind], after[kind]}} {
				if err := meet(t, pair[0], pair[1], "a", start); err != nil {
					t.Errorf("%s, %s: %v", step.phase, kind, err)
				}
			}
			if renewed := string(before[kind]["tls.crt"]) != string(after[kind]["tls.crt"]); renewed != step.renewed {
				t.Errorf("%s: the certificate of %s is renewed: %v, want %v", step.phase, kind, renewed, step.renewed)
			}
		}
		before, trust = after, roots.Trust()
	}
	for _, server := range Kinds {
		if meet(t, before[server], first[server], "a", start) == nil {
			t.Errorf("%s still takes a certificate of the former CA", server)
		}
	}
	if again := Advance(data); !equal(again, data) {
		t.Error("there is a step after the last one")
	}
	for key := range data {
		if key != keyPhase && !strings.Contains(key, "-") {
			t.Errorf("the former CA's %s is still stored", key)
		}
	}
}

// TestEachRootIsRenewed: a kind's CA that is due gets its successor, and the others stay.
func TestEachRootIsRenewed(t *testing.T) {
	_, data := ensureRoots(t, nil, true, start)
	later := start.Add(authorityLife / 3 * 2)
	_, link, err := EnsureAuthority("link.main-ca", nil, later, rand.Reader) // a younger one
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range link {
		data["link-"+key] = value
	}
	roots, after := ensureRoots(t, data, true, later)
	for kind, want := range map[Kind]int{Peer: 2, Etcd: 2, Link: 1} {
		if n := strings.Count(string(roots.Of(kind).Bundle()), "BEGIN"); n != want {
			t.Errorf("%s trusts %d CAs, want %d", kind, n, want)
		}
	}
	if equal(after, data) {
		t.Error("the successors are not stored")
	}
}

func TestSpoiltRootsAreAnErrorAndNotReplaced(t *testing.T) {
	_, shared := ensureRoots(t, nil, false, start)
	_, announced := ensureRoots(t, shared, true, start)
	_, separate := ensureRoots(t, nil, true, start)
	for what, c := range map[string]struct {
		of    map[string][]byte
		spoil func(map[string][]byte)
	}{
		"no key of a kind": {separate, func(d map[string][]byte) { delete(d, "etcd-tls.key") }},
		"a kind is missing": {separate, func(d map[string][]byte) {
			maps.DeleteFunc(d, func(k string, _ []byte) bool { return strings.HasPrefix(k, "link-") })
		}},
		"all kinds are missing": {announced, func(d map[string][]byte) {
			maps.DeleteFunc(d, func(k string, _ []byte) bool { return strings.Contains(k, "-") })
		}},
		"an unknown phase":         {announced, func(d map[string][]byte) { d["phase"] = []byte("later") }},
		"the shared CA is missing": {announced, func(d map[string][]byte) { delete(d, "ca.crt"); delete(d, "tls.crt"); delete(d, "tls.key") }},
		"nothing that is known":    {shared, func(d map[string][]byte) { clear(d); d["x"] = nil }},
	} {
		for _, wantSeparate := range []bool{true, false} {
			spoilt := maps.Clone(c.of)
			c.spoil(spoilt)
			if _, _, err := EnsureRoots("main-ca", spoilt, wantSeparate, start, rand.Reader); err == nil || !strings.Contains(err.Error(), "restore the Secret") {
				t.Errorf("%s: %v, want an error that says what to do", what, err)
			}
		}
	}
}

// TestTheLastStepEndsWithKeysThatSomebodyElseApplied: who restored the Secret owns its keys, too,
// so the operator's apply removes none of them.
func TestTheLastStepEndsWithKeysThatSomebodyElseApplied(t *testing.T) {
	_, shared := ensureRoots(t, nil, false, start)
	_, announced := ensureRoots(t, shared, true, start)
	signing := Advance(announced)
	for _, restored := range []map[string][]byte{shared, announced, signing} {
		stored := maps.Clone(restored)
		maps.Copy(stored, Advance(signing))
		roots, wanted := ensureRoots(t, stored, true, start)
		if roots.Phase() != Separate {
			t.Errorf("the phase is %s after the last step", roots.Phase())
		}
		if n := strings.Count(string(roots.Of(Link).Bundle()), "BEGIN"); n != 1 {
			t.Errorf("%d CAs of links are trusted after the last step", n)
		}
		if string(wanted["phase"]) != "separate" {
			t.Errorf("the phase is stored as %q", wanted["phase"])
		}
	}
}

// TestALostPhaseCutsNoConnection: whatever the phase was, what was signed in it stays trusted.
func TestALostPhaseCutsNoConnection(t *testing.T) {
	_, data := ensureRoots(t, nil, false, start)
	var roots *Roots
	roots, data = ensureRoots(t, data, true, start)
	for range 2 {
		before := leavesOf(t, roots, nil, start)
		lost := maps.Clone(data)
		delete(lost, "phase")
		again, _ := ensureRoots(t, lost, true, start)
		after := leavesOf(t, again, before, start)
		for _, kind := range Kinds {
			for _, pair := range [][2]map[string][]byte{{before[kind], after[kind]}, {after[kind], before[kind]}} {
				if err := meet(t, pair[0], pair[1], "a", start); err != nil {
					t.Errorf("%s, %s: %v", roots.Phase(), kind, err)
				}
			}
		}
		roots, data = ensureRoots(t, Advance(data), true, start)
	}
}

// TestARetreatTakesPodsOfAnEarlierVersionBack: they know the shared CA only, so those with
// certificates of the new CAs and they refuse each other, and after a retreat they don't.
func TestARetreatTakesPodsOfAnEarlierVersionBack(t *testing.T) {
	roots, data := ensureRoots(t, nil, false, start)
	earlier := leavesOf(t, roots, nil, start)
	_, data = ensureRoots(t, data, true, start)
	signing, data := ensureRoots(t, Advance(data), true, start)
	later := leavesOf(t, signing, nil, start)
	back, data := ensureRoots(t, Retreat(data), true, start)
	if back.Phase() != Announced || !equal(Retreat(data), data) {
		t.Fatalf("the phase is %s after a retreat", back.Phase())
	}
	again := leavesOf(t, back, later, start)
	for _, kind := range Kinds {
		if meet(t, earlier[kind], later[kind], "a", start) == nil {
			t.Errorf("%s: a pod of the earlier version takes a certificate of a CA that it does not know", kind)
		}
		for _, pair := range [][2]map[string][]byte{{earlier[kind], again[kind]}, {again[kind], earlier[kind]}, {later[kind], again[kind]}, {again[kind], later[kind]}} {
			if err := meet(t, pair[0], pair[1], "a", start); err != nil {
				t.Errorf("%s, after a retreat: %v", kind, err)
			}
		}
	}
	separate, data := ensureRoots(t, Advance(Advance(data)), true, start)
	if separate.Phase() != Separate || !equal(Retreat(data), data) {
		t.Error("there is a retreat from the last phase")
	}
}

func TestAgeOfALeaf(t *testing.T) {
	roots, _ := ensureRoots(t, nil, true, start)
	leaf := leafOf(t, roots.Of(Link), nil, start, "a")
	if age := LeafAge(leaf, start.Add(time.Hour)); age != time.Hour {
		t.Errorf("a certificate of an hour is %v old", age)
	}
	if age := LeafAge(nil, start); age != 0 {
		t.Errorf("no certificate is %v old", age)
	}
}
