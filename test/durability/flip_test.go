//go:build e2e && linux

package durability

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/internal/testutil"
	"github.com/carillon-mq/carillon/test/durability/checker"
)

// segments returns the paths of a stream's segments, oldest first.
func segments(t *testing.T, data, stream string) []string {
	t.Helper()
	var found []string
	testutil.Must(t, filepath.WalkDir(data, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".log" || strings.HasSuffix(filepath.Dir(path), ".state") {
			return err
		}
		content, err := os.ReadFile(path)
		if bytes.Contains(content, []byte(stream+".p")) {
			found = append(found, path)
		}
		return err
	}))
	slices.Sort(found)
	return found
}

// flip inverts one bit of a file, in a random byte between two positions.
func flip(t *testing.T, rng *rand.Rand, path string, from, to int) {
	t.Helper()
	content, err := os.ReadFile(path)
	testutil.Must(t, err)
	at, bit := from+rng.IntN(to-from), rng.IntN(8)
	content[at] ^= 1 << bit
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	testutil.Must(t, err)
	_, err = f.WriteAt(content[at:at+1], int64(at))
	testutil.Must(t, errors.Join(err, f.Close()))
	t.Logf("flipped bit %d of byte %d of %s", bit, at, path)
}

// message returns the position of a message's subject, in a batch of the second or third quarter of
// a segment's batches. Damage outside of batches destroys no message.
func message(t *testing.T, rng *rand.Rand, path, stream string) (from, to int) {
	t.Helper()
	content, err := os.ReadFile(path)
	testutil.Must(t, err)
	subject := []byte(stream + ".p")
	batches := frames(t, path, batchFrame)
	batch := batches[len(batches)/4+rng.IntN(len(batches)/2)]
	from = batch[0]
	for range 1 + rng.IntN(bytes.Count(content[batch[0]:batch[1]], subject)) {
		from += 1 + bytes.Index(content[from+1:], subject)
	}
	return from, from + len(subject)
}

// Kinds of frames of a segment: batches, and the markers between them. fewBatches is enough for one
// in the middle to have others before and after it.
const (
	batchFrame, markerFrame = 1, 2
	fewBatches              = 8
)

// frames returns the begin and end of each frame of one kind in a segment.
func frames(t *testing.T, path string, kind byte) (found [][2]int) {
	t.Helper()
	content, err := os.ReadFile(path)
	testutil.Must(t, err)
	for at := 0; at+9 < len(content); {
		length := int(binary.LittleEndian.Uint32(content[at:]))
		if length == 0 || at+length > len(content) {
			break
		}
		if content[at+8] == kind {
			found = append(found, [2]int{at, at + length})
		}
		at += length
	}
	return found
}

var toldLost = regexp.MustCompile(`records from (\d+) up to (\d+) can't be read`)

// told returns the messages that the server reported as unreadable in its log after the position
// since.
func (s *server) told(since int) []checker.Range {
	s.t.Helper()
	all, err := os.ReadFile(s.log.Name())
	testutil.Must(s.t, err)
	var ranges []checker.Range
	for _, m := range toldLost.FindAllSubmatch(all[since:], -1) {
		from, err1 := strconv.ParseUint(string(m[1]), 10, 64)
		next, err2 := strconv.ParseUint(string(m[2]), 10, 64)
		testutil.Must(s.t, errors.Join(err1, err2))
		if r := (checker.Range{From: from, Next: next}); !slices.Contains(ranges, r) {
			ranges = append(ranges, r)
		}
	}
	return ranges
}

// TestAFlippedBitIsReportedAndHarmsNothingElse damages one Topic while the broker is stopped. The
// broker must report unreadable messages by sequence and return all others. The other Topic must be
// unharmed.
func TestAFlippedBitIsReportedAndHarmsNothingElse(t *testing.T) {
	rng := moments(t)
	data := filepath.Join(runDir, "flipped")
	s := carillon(t, data)
	s.start()
	_, js := s.connect(t)
	bad, good := checker.NewHistory("bad"), checker.NewHistory("good")
	for _, h := range []*checker.History{bad, good} {
		s.create(js, h, "one")
	}
	// publish publishes to one of them until it has so many more segments.
	publish := func(h *checker.History, more int) {
		before := len(segments(t, data, h.Stream))
		load, err := h.Start(t.Context(), checker.Workload{URL: s.url, Sync: 4, Async: 1})
		testutil.Must(t, err)
		defer load.Stop()
		testutil.Eventually(t, fmt.Sprintf("%d more segments", more), func() error {
			s.alive()
			if n := len(segments(t, data, h.Stream)); n < before+more {
				return fmt.Errorf("there are %d: %s", n, h)
			}
			return nil
		})
		s.progress(h, h.Progress(), 200, 0)
	}
	read := func(h *checker.History, told ...checker.Range) *checker.Verdict {
		t.Helper()
		entries, err := h.Read(soon(t), js)
		if err != nil {
			t.Errorf("%v", err)
		}
		v := h.Judge(entries, told...)
		t.Logf("%s; %s; told: %v", h, v, told)
		return v
	}
	lost := 0 // messages
	for _, c := range []struct {
		name  string
		which func(files []string) string
	}{
		{"in a sealed segment", func(files []string) string { return files[len(files)-2] }},
		{"in the active segment", func(files []string) string { return files[len(files)-1] }},
	} {
		publish(bad, 2)
		publish(good, 1)
		s.stop()
		path := c.which(segments(t, data, bad.Stream))
		for len(frames(t, path, batchFrame)) < fewBatches { // the active segment has just begun
			s.start()
			publish(bad, 0)
			s.stop()
			path = c.which(segments(t, data, bad.Stream))
		}
		from, to := message(t, rng, path, bad.Stream)
		flip(t, rng, path, from, to)
		s.start()

		testutil.Must(t, s.judge(js, good, "one").Err())
		testutil.Must(t, bad.Drain(soon(t), js, "one"))
		read(bad) // it finds damage that was not yet read
		told := s.told(0)
		if len(told) == 0 {
			t.Errorf("%s: the server did not tell of any damage", c.name)
		}
		verdict := read(bad, told...)
		stream, err := js.Stream(soon(t), bad.Stream)
		testutil.Must(t, err)
		for _, r := range told {
			_, err := stream.GetMsg(soon(t), r.From)
			if api, ok := errors.AsType[*jetstream.APIError](err); !ok || !strings.Contains(api.Description, "damaged") {
				t.Errorf("%s: message %d can't be read, and who asks for it is told: %v", c.name, r.From, err)
			}
		}
		if err := verdict.Err(); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		// Messages whose ack came late count, too.
		before := lost
		if lost = int(stream.CachedInfo().State.LastSeq) - verdict.Read; lost-before < 1 || lost-before > 2000 {
			t.Errorf("%s: a flipped bit took %d messages", c.name, lost-before)
		}
		for _, h := range []*checker.History{bad, good} {
			before := h.Progress()
			load, err := h.Start(t.Context(), checker.Workload{URL: s.url, Sync: 2, Consumers: []string{"one"}})
			testutil.Must(t, err)
			s.progress(h, before, 50, 5) // both Topics are still served
			load.Stop()
		}
	}
	info, err := js.Stream(soon(t), bad.Stream)
	testutil.Must(t, err)
	if state := info.CachedInfo().State; state.FirstSeq != 1 || state.LastSeq < uint64(bad.Progress().Acked) {
		t.Errorf("the stream's state is %+v with %d acknowledged messages", state, bad.Progress().Acked)
	}
}

// TestAFlippedBitAmongCursorsIsReported damages the log of cursors while the broker is stopped. The
// broker must not guess a damaged cursor, and messages must be unharmed. Damage outside of batches
// destroys no cursor.
func TestAFlippedBitAmongCursorsIsReported(t *testing.T) {
	for _, c := range []struct {
		name, stream string
		kind         byte
		told         bool // the broker reports that it read cursors from a damaged log
	}{
		{"in a batch", "cursors", batchFrame, true},
		{"in a marker between batches", "markers", markerFrame, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			rng := moments(t)
			data := filepath.Join(runDir, c.stream)
			s := carillon(t, data)
			s.start()
			_, js := s.connect(t)
			h, consumed := checker.NewHistory(c.stream), checker.NewHistory(c.stream)
			s.create(js, h, "one")
			load, err := h.Start(t.Context(), checker.Workload{URL: s.url, Sync: 4, Async: 1})
			testutil.Must(t, err)
			consumers, err := consumed.Start(t.Context(), checker.Workload{URL: s.url, Consumers: []string{"one"}})
			testutil.Must(t, err)
			s.progress(h, checker.Progress{}, 1000, 0)
			s.progress(consumed, checker.Progress{}, 0, 500)
			load.Stop()
			consumers.Stop()
			s.stop()

			logs, err := filepath.Glob(filepath.Dir(segments(t, data, h.Stream)[0]) + ".state/*.log")
			testutil.Must(t, err)
			path := logs[len(logs)-1]
			among := frames(t, path, c.kind)
			at := among[len(among)/4+rng.IntN(len(among)/2)]
			flip(t, rng, path, at[0], at[1])
			said, err := os.ReadFile(s.log.Name())
			testutil.Must(t, err)
			s.start()
			testutil.Must(t, s.judge(js, h).Err())

			reason := ""
			testutil.Eventually(t, "the consumer is served, or refused for the damage", func() error {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				_, err := js.Consumer(ctx, h.Stream, "one")
				if api, ok := errors.AsType[*jetstream.APIError](err); ok && strings.Contains(api.Description, "damaged") {
					reason = api.Description
					return nil
				}
				return err
			})
			after, err := os.ReadFile(s.log.Name())
			testutil.Must(t, err)
			if !bytes.Contains(after[len(said):], []byte("a Topic's log is damaged")) {
				t.Errorf("nothing was said of damage:\n%s", after[len(said):])
			}
			if told := bytes.Contains(after[len(said):], []byte("cursors were read from a damaged log")); told != c.told {
				t.Errorf("that cursors may be lost was said: %v, want %v:\n%s", told, c.told, after[len(said):])
			}
			if reason == "" {
				testutil.Must(t, consumed.Drain(soon(t), js, "one")) // acknowledged messages may be delivered again, as reported
				return
			}
			t.Logf("refused: %s", reason)
			if !c.told {
				t.Errorf("a consumer is refused although its cursor is whole")
			}
			testutil.Must(t, js.DeleteConsumer(soon(t), h.Stream, "one")) // as the report advises
			_, err = js.CreateConsumer(soon(t), h.Stream, jetstream.ConsumerConfig{Durable: "one", AckPolicy: jetstream.AckExplicitPolicy})
			testutil.Must(t, err)
			testutil.Must(t, h.Drain(soon(t), js, "one"))
			testutil.Must(t, s.judge(js, h, "one").Err())
		})
	}
}

// TestAFlippedBitInAManifestIsReported: a damaged manifest is rebuilt from the segments.
func TestAFlippedBitInAManifestIsReported(t *testing.T) {
	data := filepath.Join(runDir, "described")
	s := carillon(t, data)
	s.start()
	_, js := s.connect(t)
	h := checker.NewHistory("described")
	s.create(js, h, "one")
	load, err := h.Start(t.Context(), checker.Workload{URL: s.url, Sync: 4, Consumers: []string{"one"}})
	testutil.Must(t, err)
	s.progress(h, checker.Progress{}, 200, 20)
	load.Stop()
	s.kill()
	manifest := filepath.Join(filepath.Dir(segments(t, data, h.Stream)[0]), "manifest")
	content, err := os.ReadFile(manifest)
	testutil.Must(t, err)
	// The manifest has two slots, of different lengths. The checksum covers the bytes after the
	// first line, without the last byte.
	slots := [2][]byte{content[:len(content)/2], content[len(content)/2:]}
	least := len(content)
	for _, slot := range slots {
		least = min(least, len(bytes.TrimRight(slot, "\x00"))-1)
	}
	line := 1 + bytes.IndexByte(content, '\n')
	at := line + moments(t).IntN(least-line)
	for _, slot := range slots {
		slot[at] ^= 1
	}
	testutil.Must(t, os.WriteFile(manifest, content, 0o640))
	s.start()
	testutil.Must(t, s.judge(js, h, "one").Err())
	said, err := os.ReadFile(s.log.Name())
	testutil.Must(t, err)
	if !bytes.Contains(said, []byte("made again from the segments")) {
		t.Errorf("nothing was said of damage:\n%s", said)
	}
}
