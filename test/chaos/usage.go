package chaos

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/carillon-mq/carillon/broker/limits"
)

// Usage is what one process has at one moment, as its metrics have it.
type Usage struct {
	Descriptors float64 // open files and sockets; of a broker, all but its logs' files
	Goroutines  float64
	Heap        float64 // bytes at which the next garbage collection begins: about twice what is live
	Resident    float64 // bytes of memory, the garbage and what the runtime keeps for later among them
}

// bound is how much of one resource may be added in a soak, whatever its length.
type bound struct {
	what, metric string
	of           func(*Usage) *float64
	share        float64 // of what there was at first
	add          float64
}

// bounds are between what comes and goes at one moment and what leaks in minutes. Descriptors and
// goroutines: clients come back together after a fault. Heap: the ends of logs are kept in memory
// up to limits.TailBytes, which takes minutes to fill, and a collection begins at twice what is
// live. Resident memory goes up and down with garbage.
var bounds = []bound{
	{"descriptors", "process_open_fds", func(u *Usage) *float64 { return &u.Descriptors }, 0.3, 30},
	{"goroutines", "go_goroutines", func(u *Usage) *float64 { return &u.Goroutines }, 0.3, 60},
	{"bytes of heap", "go_memstats_next_gc_bytes", func(u *Usage) *float64 { return &u.Heap }, 0.5, 2*limits.TailBytes + 16<<20},
	{"bytes of memory", "process_resident_memory_bytes", func(u *Usage) *float64 { return &u.Resident }, 0.5, 2*limits.TailBytes + 64<<20},
}

// ReadUsage takes it from metrics in the text format.
func ReadUsage(metrics io.Reader) (u Usage, err error) {
	found := 0
	lines := bufio.NewScanner(metrics)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		for _, b := range bounds {
			if name != b.metric {
				continue
			}
			if *b.of(&u), err = strconv.ParseFloat(value, 64); err != nil {
				return u, fmt.Errorf("metric %s: %w", name, err)
			}
			found++
		}
	}
	if err := lines.Err(); err != nil {
		return u, err
	}
	if found != len(bounds) {
		return u, fmt.Errorf("the metrics have %d of the %d that are asked for", found, len(bounds))
	}
	return u, nil
}

// leastSamples is how many samples of one life of a process show whether it leaks: those after
// three rounds of faults.
const leastSamples = 9

// JudgeUsage holds the samples of one life of a process, taken at equal work, to the bounds. What
// the process has at last, as the median of the last third, is compared with what it had at first.
// It returns what grew.
func JudgeUsage(samples []Usage) (grew []string) {
	if len(samples) < leastSamples {
		return nil
	}
	third := len(samples) / 3
	for _, b := range bounds {
		before, after := b.median(samples[:third]), b.median(samples[len(samples)-third:])
		if most := before + max(b.add, b.share*before); after > most {
			grew = append(grew, fmt.Sprintf("it had %.0f %s at first, and %.0f at last, of at most %.0f", before, b.what, after, most))
		}
	}
	return grew
}

func (b bound) median(samples []Usage) float64 {
	values := make([]float64, 0, len(samples))
	for _, u := range samples {
		values = append(values, *b.of(&u))
	}
	slices.SortFunc(values, cmp.Compare)
	return values[len(values)/2]
}

func (u Usage) String() string {
	return fmt.Sprintf("%.0f descriptors, %.0f goroutines, heap %.0f MiB, resident %.0f MiB", u.Descriptors, u.Goroutines, u.Heap/(1<<20), u.Resident/(1<<20))
}
