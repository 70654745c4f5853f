package copystate

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/carillon-mq/carillon/broker/log"
)

var rewrite = flag.Bool("rewrite", false, "write what happens into the transcripts in testdata, for review")

// TestTranscripts: a transcript in testdata is the story of one copy. Each line is an event. The
// line below it, which begins with ">", is the State after it and the actions that follow.
//
//	open counted orderly synced     the copy is opened; words that are missing are false
//	open counted torn damage=TEXT anew lost short replicated memory missing missing-cursors
//	crash                           the process dies: only the manifest is left
//	harmed TEXT, failed TEXT led=3 memory, repaired, unrepairable TEXT, aside, contradicted TEXT
//	seen 3 earlier nobody           the shard's key: epoch, own entry, leader
//	seen 4 current self doubted leading alone others caught-up
//	cannot open 4 current self      an attempt to open the logs fails; more words are those of seen
//	cannot open restored            the same of a shard of an earlier generation of etcd
//	gone                            the logs were deleted, or set aside for good
//	caught up 3
//	# a comment
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts in testdata: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := play(t, string(text))
			if *rewrite {
				if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			want := strings.Split(string(text), "\n")
			for i, line := range strings.Split(got, "\n") {
				if i >= len(want) || want[i] != line {
					t.Fatalf("%s:%d: %q; go test -rewrite shows all as a diff", file, i+1, line)
				}
			}
		})
	}
}

// play returns the transcript as it happens.
func play(t *testing.T, text string) string {
	var out strings.Builder
	var s State
	var kept []byte
	epoch := uint64(1)
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, ">") {
			continue
		}
		if line != "" || !strings.HasSuffix(out.String(), "\n\n") {
			out.WriteString(line + "\n")
		}
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if line == "crash" {
			s = State{}
			continue
		}
		e := parseEvent(t, line, kept, &epoch)
		if o, ok := e.(Opened); ok && strings.Contains(line, "missing") {
			kept = o.Kept.Encode()
		}
		var actions []Action
		s, actions = Apply(s, e)
		if slices.Contains(actions, Keep) {
			kept = s.Encode()
		}
		if slices.Contains(actions, SetAside) {
			kept = nil // of the log that goes
		}
		var names []string
		for _, a := range actions {
			names = append(names, a.String())
		}
		said := "nothing"
		if len(names) > 0 {
			said = strings.Join(names, ", ")
		}
		fmt.Fprintf(&out, "> %s: %s\n", s, said)
	}
	return strings.TrimRight(out.String(), "\n") + "\n"
}

func parseEvent(t *testing.T, line string, kept []byte, epoch *uint64) Event {
	t.Helper()
	what, rest, _ := strings.Cut(line, " ")
	words := strings.Fields(rest)
	has := func(word string) bool { return slices.Contains(words, word) }
	value := func(name string) string {
		for _, word := range words {
			if v, ok := strings.CutPrefix(word, name+"="); ok {
				return strings.ReplaceAll(v, "-", " ")
			}
		}
		return ""
	}
	number := func(text string) uint64 {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		return n
	}
	durability := log.Synced
	if has("replicated") {
		durability = log.Replicated
	} else if has("memory") {
		durability = log.Memory
	}
	switch what {
	case "open":
		before := Decode(kept)
		if has("missing") {
			before = Missing(has("counted"), *epoch)
			if has("aside") {
				before = State{}.doubt(Partial, "it was set aside", *epoch)
			}
		}
		if has("missing-cursors") {
			before = MissingCursors(before, *epoch)
		}
		return Opened{Kept: before, Lost: has("lost"), Counted: has("counted"), Orderly: has("orderly"), Durability: durability,
			Torn: has("torn"), Damage: value("damage"), Anew: has("anew"), Short: has("short"), EndLost: has("end-lost"), Epoch: *epoch}
	case "damaged":
		return DamageFound{Reason: rest, Epoch: *epoch}
	case "failed":
		led := uint64(0)
		if value("led") != "" {
			led = number(value("led"))
		}
		return Failed{Led: led, Durability: durability, Reason: "no space", Epoch: *epoch}
	case "repaired":
		return Repaired{}
	case "unrepairable":
		return Unrepairable{rest}
	case "aside":
		return MovedAside{}
	case "contradicted":
		return Contradicted{rest, *epoch}
	case "gone":
		return Gone{}
	case "cannot":
		if has("restored") {
			return CannotOpen{Restored: true}
		}
		return CannotOpen{Shard: parseEvent(t, "seen "+strings.Join(words[1:], " "), kept, epoch).(ShardSeen)}
	case "caught":
		return CaughtUp{number(words[1])}
	case "seen":
		*epoch = number(words[0])
		e := ShardSeen{Epoch: *epoch, Doubted: has("doubted"), Leading: has("leading"), Alone: has("alone"), Others: has("others"),
			CaughtUp: has("caught-up"), Unwanted: has("unwanted")}
		for entry := NoMember; entry <= Undecided; entry++ {
			if strings.Contains(rest, entry.String()) {
				e.Entry = entry
			}
		}
		for leader := Nobody; leader <= Other; leader++ {
			if has(leader.String()) {
				e.Leader = leader
			}
		}
		return e
	}
	t.Fatalf("%q is no event", line)
	return nil
}
