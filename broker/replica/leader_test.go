package replica

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/log"
)

var rewrite = flag.Bool("rewrite", false, "write what happens into the transcripts in testdata, to be read as a diff")

// TestLeaderTranscripts: each transcript drives one Leader. A block consists of commands, a line of
// ----, and their output with the state at its end. Lines that begin with # are comments.
func TestLeaderTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/leader_*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			was, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			is, err := replay(string(was))
			if err != nil {
				t.Fatal(err)
			}
			if *rewrite {
				if err := os.WriteFile(file, []byte(is), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if !bytes.Equal(was, []byte(is)) {
				t.Errorf("%s goes otherwise (-rewrite, and read the diff):\n%s", file, firstDifference(string(was), is))
			}
		})
	}
}

func firstDifference(was, is string) string {
	a, b := strings.Split(was, "\n"), strings.Split(is, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("line %d\nwas: %s\nis:  %s", i+1, a[i], b[i])
		}
	}
	return fmt.Sprintf("was %d lines, is %d", len(a), len(b))
}

// replay executes a transcript's commands and returns the transcript with the present output.
func replay(transcript string) (string, error) {
	var (
		out  strings.Builder
		s    tale
		said []string
		skip bool
	)
	for i, line := range strings.Split(strings.TrimRight(transcript, "\n"), "\n") {
		switch {
		case line == "----":
			out.WriteString("----\n")
			for _, answer := range append(said, s.state()) {
				out.WriteString(answer + "\n")
			}
			said, skip = nil, true
			continue
		case line == "":
			skip = false
		case !skip && !strings.HasPrefix(line, "#"):
			answer, err := s.do(strings.Fields(line))
			if err != nil {
				return "", fmt.Errorf("line %d: %s: %w", i+1, line, err)
			}
			if answer != "" {
				said = append(said, answer)
			}
		}
		if !skip {
			out.WriteString(line + "\n")
		}
	}
	return out.String(), nil
}

// tale is one Leader, and the etcd that its transcript simulates.
type tale struct {
	l      *Leader
	now    time.Duration
	wanted []coordination.Replica
}

// state formats the present state.
func (s *tale) state() string {
	text := fmt.Sprintf("high %d,%d of %d,%d set %s", s.l.high[Data], s.l.high[State], s.l.end[Data], s.l.end[State], setString(s.l.shard.InSync))
	if s.l.unanswered != nil {
		text += " asked for " + setString(s.l.unanswered)
	}
	if b := &s.l.barrier; b.begun > 0 {
		text += fmt.Sprintf(" rounds %d of %d", b.confirmed, b.begun)
	}
	if !s.l.Readable() {
		text += " unreadable"
	}
	if !s.l.Enough() {
		text += " too few"
	}
	return text
}

func setString(set []coordination.Replica) string {
	var names []string
	for _, m := range set {
		names = append(names, fmt.Sprintf("%s@%d", m.Broker, m.Incarnation))
	}
	slices.Sort(names)
	return "{" + strings.Join(names, " ") + "}"
}

func (s *tale) do(words []string) (string, error) {
	given := map[string]string{}
	var plain []string
	for _, w := range words[1:] {
		if name, value, ok := strings.Cut(w, "="); ok {
			given[name] = value
		} else {
			plain = append(plain, w)
		}
	}
	who := coordination.Replica{}
	if len(plain) > 0 {
		if m, err := members(plain[0]); err == nil {
			who = m[0]
		}
	}
	said := func(moved bool) (string, error) {
		if moved {
			return words[0] + ": the watermark moves", nil
		}
		return "", nil
	}
	switch words[0] {
	case "lead": // lead a@1 replicas=a,b set=a@1,b@2 min=2 end=5,1 high=3,1
		shard := &coordination.Shard{Topic: "orders", Epoch: 1, Leader: who.Broker, Revision: 1, Replicas: strings.Split(given["replicas"], ",")}
		set, err := members(given["set"])
		if err != nil {
			return "", err
		}
		shard.InSync = set
		least, err := strconv.Atoi(given["min"])
		if err != nil {
			return "", err
		}
		end, err := offsets(given["end"])
		if err != nil {
			return "", err
		}
		high, err := offsets(given["high"])
		if err != nil {
			return "", err
		}
		s.l = NewLeader(who, shard, least, end, high)
	case "grown", "safe", "copied": // safe data=5; copied b@2 data=5
		for p, name := range map[Part]string{Data: "data", State: "state"} {
			if given[name] == "" {
				continue
			}
			to, err := strconv.ParseUint(given[name], 10, 64)
			if err != nil {
				return "", err
			}
			switch words[0] {
			case "grown":
				s.l.Appended(p, to)
			case "safe":
				return said(s.l.Safe(p, to))
			default:
				return said(s.l.Copied(who, p, to, s.now))
			}
		}
	case "join": // join b@2 5,1
		safe, err := offsets(plain[1])
		if err != nil {
			return "", err
		}
		if !s.l.Join(who, safe, s.now) {
			return "join: refused", nil
		}
		return said(s.l.advance())
	case "part":
		s.l.Disconnected(who, s.now)
	case "question":
		return fmt.Sprintf("question: waits for round %d", s.l.RequestRound()), nil
	case "confirm": // confirm b@2 3
		round, err := strconv.ParseUint(plain[1], 10, 64)
		if err != nil {
			return "", err
		}
		if !s.l.Confirm(who, round) {
			return "", nil
		}
		return fmt.Sprintf("confirm: round %d is confirmed", s.l.Confirmed()), nil
	case "stuck": // stuck b@2 5,1
		ends, err := offsets(plain[1])
		if err != nil {
			return "", err
		}
		s.l.Stuck(who, ends)
	case "beyond":
		if data, state := s.l.NobodyBeyond(Data), s.l.NobodyBeyond(State); data > 0 && state > 0 {
			return fmt.Sprintf("beyond: nobody has anything from %d,%d on", data, state), nil
		}
		return "beyond: somebody may", nil
	case "left":
		s.l.Left(who)
	case "lost": // lost b=4-9,20- c@3=1-30: what b, under repair, lacks, and what c@3 got nothing for
		lacks := map[string][]log.Span{}
		for id, text := range given {
			for span := range strings.SplitSeq(text, ",") {
				s := log.Span{Next: math.MaxUint64}
				if n, _ := fmt.Sscanf(span, "%d-%d", &s.From, &s.Next); n == 0 {
					return "", fmt.Errorf("%q is no span (write 4-9)", span)
				}
				lacks[id] = append(lacks[id], s)
			}
		}
		answer := "lost:"
		for _, span := range s.l.Lost(Data, func(id string) []log.Span { return lacks[id] },
			func(r coordination.Replica) []log.Span { return lacks[fmt.Sprintf("%s@%d", r.Broker, r.Incarnation)] }) {
			answer += fmt.Sprintf(" %d-%d", span.From, span.Next)
		}
		return strings.ReplaceAll(answer, fmt.Sprint(uint64(math.MaxUint64)), ""), nil
	case "mute":
		s.l.WithoutRounds(who)
	case "gone": // gone b@2 c@3: exactly these are gone
		s.l.UpdateGone(func(m coordination.Replica) bool {
			return !slices.Contains(plain, fmt.Sprintf("%s@%d", m.Broker, m.Incarnation))
		})
	case "at":
		now, err := time.ParseDuration(plain[0])
		if err != nil {
			return "", err
		}
		s.now = now
	case "want":
		set := s.l.Want(s.now)
		if set == nil {
			return "want: nothing", nil
		}
		s.wanted = set
		return "want: " + setString(set), nil
	case "asked": // asked done | refused | lost, or what was read: asked set=... rev=...
		switch {
		case len(plain) == 0:
			shard, err := s.shard(given)
			if err != nil {
				return "", err
			}
			return said(s.l.SwapAnswered(shard, s.now))
		case plain[0] == "lost":
			return said(s.l.SwapAnswered(nil, s.now))
		case plain[0] == "refused":
			return said(s.l.SwapAnswered(s.l.Shard(), s.now))
		}
		shard := s.l.Shard()
		shard.InSync = s.wanted
		shard.Revision++
		return said(s.l.SwapAnswered(shard, s.now))
	case "adopt": // adopt a@1 set=... rev=... min=... replicas=... epoch=...
		shard, err := s.shard(given)
		if err != nil {
			return "", err
		}
		least := int(s.l.min)
		if given["min"] != "" {
			if least, err = strconv.Atoi(given["min"]); err != nil {
				return "", err
			}
		}
		return said(s.l.Adopt(who, shard, least))
	default:
		return "", fmt.Errorf("no such command")
	}
	return "", nil
}

// shard returns the leader's shard with the given changes.
func (s *tale) shard(given map[string]string) (*coordination.Shard, error) {
	shard := s.l.Shard()
	if given["set"] != "" {
		set, err := members(given["set"])
		if err != nil {
			return nil, err
		}
		shard.InSync = set
	}
	if given["replicas"] != "" {
		shard.Replicas = strings.Split(given["replicas"], ",")
	}
	for name, to := range map[string]*int64{"rev": &shard.Revision, "epoch": &shard.Epoch} {
		if given[name] != "" {
			n, err := strconv.ParseInt(given[name], 10, 64)
			if err != nil {
				return nil, err
			}
			*to = n
		}
	}
	return shard, nil
}

func members(text string) (set []coordination.Replica, err error) {
	for name := range strings.SplitSeq(text, ",") {
		id, life, ok := strings.Cut(name, "@")
		n, err := strconv.ParseInt(life, 10, 64)
		if !ok || err != nil {
			return nil, fmt.Errorf("%q is no member (write b@2)", name)
		}
		set = append(set, coordination.Replica{Broker: id, Incarnation: n})
	}
	return set, nil
}

func offsets(text string) (at [Parts]uint64, err error) {
	if text == "" {
		return at, nil
	}
	for i, n := range strings.SplitN(text, ",", int(Parts)) {
		if at[i], err = strconv.ParseUint(n, 10, 64); err != nil {
			return at, err
		}
	}
	return at, nil
}
