package chaos

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func copyOf(broker string, start, end uint64) Copy {
	c := Copy{Broker: broker, Start: start, End: end}
	for at := start; at < end; at++ {
		c.Records = append(c.Records, Record{Offset: at, Epoch: 1 + at/10, Time: int64(at), Subject: "s", Content: fmt.Sprintf("record %d", at)})
	}
	return c
}

func TestCopiesThatAgree(t *testing.T) {
	if found := CompareCopies([]Copy{copyOf("b0", 1, 40), copyOf("b1", 20, 41), copyOf("b2", 1, 42)}, 40); len(found) > 0 {
		t.Errorf("found %q", found)
	}
	damaged := copyOf("b0", 1, 40)
	damaged.Records, damaged.Damaged = slices.Delete(damaged.Records, 4, 9), []Span{{5, 10}}
	if found := CompareCopies([]Copy{damaged, copyOf("b1", 1, 40)}, 40); len(found) > 0 {
		t.Errorf("what a copy says it can't read was found: %q", found)
	}
}

// TestCopiesThatDiffer introduces one fault at a time.
func TestCopiesThatDiffer(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault func(*Copy)
		want  string
	}{
		{"another record", func(c *Copy) { c.Records[20].Content = "other" }, "replicas differ from 21 to 21"},
		{"the same record of another epoch", func(c *Copy) { c.Records[38].Epoch = 9 }, "replicas differ from 39 to 39"},
		{"another time", func(c *Copy) { c.Records[2].Time = 0 }, "replicas differ from 3 to 3"},
		{"another subject", func(c *Copy) { c.Records[2].Subject = "x" }, "replicas differ from 3 to 3"},
		{"a tail of its own", func(c *Copy) {
			for i := 35; i < 39; i++ {
				c.Records[i].Content = "mine"
			}
		}, "replicas differ from 36 to 39"},
		{"a hole", func(c *Copy) { c.Records = slices.Delete(c.Records, 10, 12) }, "offset 13 where 11 is due"},
		{"too short", func(c *Copy) { c.Records, c.End = c.Records[:30], 31 }, "ends at 31, and 40 was read"},
		{"an epoch goes back", func(c *Copy) { c.Records[25].Epoch = 1 }, "epoch 1 at 26, behind one of 3"},
	} {
		copies := []Copy{copyOf("b0", 1, 40), copyOf("b1", 1, 40), copyOf("b2", 1, 40)}
		c.fault(&copies[1])
		if found := strings.Join(CompareCopies(copies, 40), "\n"); !strings.Contains(found, c.want) {
			t.Errorf("%s: found %q, want %q", c.name, found, c.want)
		}
	}
}
