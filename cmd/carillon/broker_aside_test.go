package main

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/admin"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/env"
	"github.com/carillon-mq/carillon/broker/log"
)

// asideLists is what carillon brokers set-aside list prints as JSON.
type asideLists struct{ Brokers []asideView }

func TestPiecesArePrinted(t *testing.T) {
	id := strings.Repeat("0123", 8)
	views := []asideView{
		{Broker: admin.Broker{ID: "aa", Name: "main-0"}, Pieces: []admin.Piece{
			{Name: id + "-0.1", Kind: log.PieceSegments, Topic: "orders", TopicID: id, Exists: true, Reason: "damaged, and repaired from another replica", From: 100, Next: 151, Bytes: 3 << 20, Age: 50 * time.Hour},
			{Name: id + "-12.state.1", Kind: log.PieceLog, Topic: "orders", TopicID: id, Cursors: true, From: 1, Next: 9, Bytes: 100},
			{Name: id + "-0.torn", Kind: log.PieceTorn, TopicID: id, Bytes: 512, Age: time.Minute},
		}},
		{Broker: admin.Broker{ID: "bb", Name: "main-1"}},
		{Broker: admin.Broker{ID: "cc", Name: "main-2", Away: true}, err: errors.New("away")},
		{Broker: admin.Broker{ID: "dd", Name: "main-3"}, Pieces: []admin.Piece{{Name: id + "-1.1", Kind: log.PieceSegments, TopicID: id, From: 7}}},
	}
	var notes bytes.Buffer
	b := &brokers{notes: &notes}
	looks(t, func(w *bytes.Buffer) error { return b.printSetAside(w, views) }, `
Set aside on broker main-0: 3 pieces, 3.0 MiB
NAME                                          TOPIC           SIZE    AGE
01230123012301230123012301230123-0.1          orders          3 MiB   2d
  a part of a log from 100 to 150: damaged, and repaired from another replica
01230123012301230123012301230123-12.state.1   orders (gone)   100 B   -
  a whole log of cursors from 1 to 8
01230123012301230123012301230123-0.torn       -               512 B   60s
  torn ends of its log: writes that a crash cut short

Set aside on broker main-3: 1 piece, 0 B
NAME                                   TOPIC   SIZE   AGE
01230123012301230123012301230123-1.1   -       0 B    -
  a part of a log from 7
`)
	if got := notes.String(); got != "broker main-2 (away): what it set aside is not known\n" {
		t.Errorf("it notes %q", got)
	}
	notes.Reset()
	if looks(t, func(w *bytes.Buffer) error { return b.printSetAside(w, views[1:2]) }, "\n"); notes.String() != "nothing is set aside\n" {
		t.Errorf("it notes %q", notes.String())
	}
}

// TestSetAsidePiecesFromTheCommandLine: the commands list what a broker set aside, and delete it.
func TestSetAsidePiecesFromTheCommandLine(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	disk, err := log.OpenDisk(env.OS, dir, log.Options{SegmentSmallest: 4 << 10, SegmentLargest: 8 << 10})
	if err != nil {
		t.Fatal(err)
	}
	defer disk.Close()
	aside := func(id log.Identity, spec string) string {
		t.Helper()
		l, err := disk.Open(id, 1, 1, []byte(spec))
		if err = errors.Join(err, l.Close()); err != nil {
			t.Fatal(err)
		}
		to, err := disk.SetAside(l.Name(), "nobody knows its Topic")
		if err != nil {
			t.Fatal(err)
		}
		return to
	}
	bills := aside(log.Identity{Topic: "id-bills"}, `{"v":1,"name":"bills"}`)
	aside(log.Identity{Topic: "id-bills", Part: "state"}, "")
	aside(log.Identity{Topic: "id-orders", Shard: 3}, "")

	state := coordination.NewState(9, []coordination.Broker{{ID: "a", Incarnation: 3, Name: "main-0"}},
		[]*coordination.Topic{{Name: "orders", ID: "id-orders", Spec: coordination.TopicSpec{Subjects: []string{"orders"}, Shards: 4}}}, nil, nil)
	hub, s := serveNothing(t)
	server := admin.New("a", declared{state}, hub, slog.New(slog.DiscardHandler)).Volume(disk)
	defer server.Close()
	hub.Offer(server).Set(admin.Subjects)

	if got := s.does("brokers set-aside list"); !strings.HasPrefix(got, "Set aside on broker main-0: 3 pieces, ") || strings.Count(got, "bills (gone)") != 2 ||
		strings.Count(got, ": nobody knows its Topic\n") != 3 || !strings.Contains(got, "id-orders-3.1        orders ") {
		t.Errorf("the list is\n%s", got)
	}
	all := read[asideLists](s, "brokers set-aside ls main-0").Brokers
	if len(all) != 1 || all[0].Name != "main-0" || len(all[0].Pieces) != 3 || all[0].Pieces[1].Topic != "bills" || time.Since(all[0].Pieces[0].Since).Abs() > time.Hour {
		t.Errorf("the list is %+v", all)
	}
	for line, want := range map[string]string{
		"brokers set-aside list":                          "main-0\n:4\n",
		"brokers set-aside list main-0":                   ":4\n",
		"brokers set-aside delete":                        "main-0\n:4\n",
		"brokers set-aside delete main-0 id-orders-3.1":   "id-bills-0.1\nid-bills-0.state.1\n:4\n",
		"brokers set-aside delete another id-orders-3.1 ": ":4\n",
	} {
		s.offers(want, "__complete "+line)
	}

	s.fails(exitUsage, "names of pieces or --all", "brokers set-aside delete")
	s.fails(exitUsage, "names of pieces or --all", "brokers set-aside delete main-0")
	s.fails(exitUsage, "names of pieces or --all", "brokers set-aside delete main-0 id-bills-0.1 --all")
	s.fails(exitFailure, `there is no broker "main-1"`, "brokers set-aside list main-1")
	s.fails(exitFailure, `there is no broker "main-1"`, "brokers set-aside delete main-1 --all")
	s.fails(exitFailure, `set nothing aside as "id-bills-0.2"`, "brokers set-aside delete main-0 id-bills-0.1 id-bills-0.2 --yes")
	if _, errs, code := s.types("n\n", "brokers set-aside delete main-0 id-bills-0.1"); code != exitFailure || !strings.Contains(errs, "bills (gone)") || !strings.Contains(errs, "nothing was deleted") {
		t.Errorf("exit code %d: %s", code, errs)
	}
	if _, err := os.Stat(bills); err != nil {
		t.Error(err)
	}
	if out, errs, code := s.types("y\n", "brokers set-aside rm main-0 id-bills-0.1"); code != 0 || out != "id-bills-0.1 is deleted\n" {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
	s.prints(`{"deleted":"id-bills-0.state.1"}`+"\n"+`{"deleted":"id-orders-3.1"}`+"\n", "brokers set-aside delete main-0 --all --yes --output json")
	if left, err := filepath.Glob(filepath.Join(dir, "set-aside", "*")); err != nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err)
	}
	for _, line := range []string{"brokers set-aside list", "brokers set-aside delete main-0 --all"} {
		if out, errs, code := s.types("", line); code != 0 || out != "" || !strings.Contains(errs, "nothing") {
			t.Errorf("carillon %s: exit code %d: %s%s", line, code, out, errs)
		}
	}
}

// TestASetAsideListThatLacksABrokerFails: a list without the answer of a present broker is a
// failure; an absent broker is only noted.
func TestASetAsideListThatLacksABrokerFails(t *testing.T) {
	t.Parallel()
	state := coordination.NewState(9, []coordination.Broker{{ID: "a", Incarnation: 3, Name: "main-0"}, {ID: "b", Incarnation: 4, Name: "main-1"}}, nil, nil, nil).
		With(map[string]coordination.DrainMode{"c": coordination.DrainAll}, nil)
	s := serveState(t, state)
	out, errs, code := s.types("", "brokers set-aside list --output json")
	if code != exitFailure || !strings.Contains(out, `"error": "it is away"`) || !strings.Contains(errs, "broker b can't be reached") {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
	s.fails(exitFailure, "is away", "brokers set-aside delete c x")
	_, none := serveNothing(t)
	none.fails(exitFailure, "no Carillon broker", "brokers set-aside list")
}
