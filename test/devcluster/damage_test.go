//go:build linux

package devcluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// copies returns the segments of a broker's copy of the only stream, oldest first. All but the last
// are sealed.
func (c *cluster) copies(broker int) []string {
	c.t.Helper()
	files, err := filepath.Glob(filepath.Join(c.data, fmt.Sprintf("broker-%d", broker), "shards", "*-0", "*.log"))
	if err != nil || len(files) < 4 {
		c.t.Fatalf("broker %d has %q: %v", broker, files, err)
	}
	slices.Sort(files)
	return files
}

var repaired = regexp.MustCompile(`Repaired a segment.* part=data .*bytes=(\d+)`)

// TestDamagedSegmentsAreRepaired: a leader dies. When it starts again, one of its segments is
// missing, and a bit of another one is flipped. It fetches only these two from the new leader, sets
// the damaged file aside, and leads again with all acknowledged records.
func TestDamagedSegmentsAreRepaired(t *testing.T) {
	c := startCluster(t)
	js := c.connect()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "orders", Subjects: []string{"orders.>"}, Replicas: 3}); err != nil {
		t.Fatal(err)
	}
	const messages = 8000
	c.whole(js, "orders")
	payload := func(n int) string { return fmt.Sprintf("%d %s", n, strings.Repeat("x", 1000)) }
	var acks []jetstream.PubAckFuture
	for n := range messages {
		ack, err := js.PublishAsync("orders.a", []byte(payload(n)))
		if err != nil {
			t.Fatal(err)
		}
		if acks = append(acks, ack); len(acks) < 1000 {
			continue
		}
		for _, ack := range acks {
			select {
			case <-ack.Ok():
			case err := <-ack.Err():
				t.Fatal(err)
			case <-ctx.Done():
				t.Fatal(ctx.Err())
			}
		}
		acks = nil
	}
	victim := c.whole(js, "orders") // it leads again after its repair
	c.freeze(victim)                // it is not resumed
	files := c.copies(victim)
	lost, damaged := files[1], files[2]
	size := int64(0)
	for _, file := range []string{lost, damaged} {
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		size += info.Size()
	}
	content, err := os.ReadFile(damaged)
	if err != nil {
		t.Fatal(err)
	}
	content[len(content)-20] ^= 1 // in the footer
	content[len(content)/2] ^= 1
	if err := os.WriteFile(damaged, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(lost); err != nil {
		t.Fatal(err)
	}
	c.kill(victim)

	testutil.Eventually(t, "both segments are repaired", func() error {
		said, err := os.ReadFile(c.log.Name())
		if err != nil {
			return err
		}
		all := repaired.FindAllSubmatch(said, -1)
		bytes := int64(0)
		for _, one := range all {
			n, err := strconv.ParseInt(string(one[1]), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			bytes += n
		}
		if len(all) != 2 {
			return fmt.Errorf("%d repairs", len(all))
		}
		if bytes > size || bytes < size*9/10 {
			t.Errorf("%d bytes came for two segments of %d", bytes, size)
		}
		return nil
	})
	if aside, err := filepath.Glob(filepath.Join(filepath.Dir(lost), "..", "..", "set-aside", "*", "*.log")); err != nil || len(aside) != 1 || filepath.Base(aside[0]) != filepath.Base(damaged) {
		t.Errorf("set aside is %q, %v", aside, err)
	} else if there, err := os.ReadFile(aside[0]); err != nil || string(there) != string(content) {
		t.Errorf("what was set aside is not what was damaged: %v", err)
	}
	testutil.Eventually(t, "it leads again", func() error {
		if leader := c.whole(js, "orders"); leader != victim {
			return fmt.Errorf("broker %d leads", leader)
		}
		return nil
	})
	next := 0
	c.readAll(js, "orders", func(got string, seq uint64) {
		if seq != uint64(next)+1 || got != payload(next) {
			t.Fatalf("%d has %.20q instead of %.20q", seq, got, payload(next))
		}
		next++
	})
	if next != messages {
		t.Errorf("%d messages of %d are there", next, messages)
	}
}
