package chaos

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/carillon-mq/carillon/broker/limits"
)

// Usage is what one process uses at one moment, by its metrics.
type Usage struct {
	Descriptors float64 // open files and sockets; of a broker, all but its logs' files
	Goroutines  float64
	Heap        float64 // bytes at which the next garbage collection begins: about twice the live bytes
	Resident    float64 // bytes of memory, including garbage and what the runtime keeps for reuse
}

// bound is how much of one resource a soak of any length may add.
type bound struct {
	what, metric string
	of           func(*Usage) *float64
	share        float64 // of the use at the beginning
	add          float64
}

// bounds are larger than short fluctuations, and smaller than a leak of some minutes. Descriptors
// and goroutines: clients reconnect together after a fault. Heap: the ends of logs are kept in
// memory up to limits.TailBytes, which takes minutes to fill, and a collection begins at twice the
// live bytes. Resident memory varies with garbage.
var bounds = []bound{
	{"descriptors", "process_open_fds", func(u *Usage) *float64 { return &u.Descriptors }, 0.3, 30},
	{"goroutines", "go_goroutines", func(u *Usage) *float64 { return &u.Goroutines }, 0.3, 60},
	{"bytes of heap", "go_memstats_next_gc_bytes", func(u *Usage) *float64 { return &u.Heap }, 0.5, 2*limits.TailBytes + 16<<20},
	{"bytes of memory", "process_resident_memory_bytes", func(u *Usage) *float64 { return &u.Resident }, 0.5, 2*limits.TailBytes + 64<<20},
}

// ReadUsage reads the usage from metrics in the text format.
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

// ReadMetric reads a metric without labels from metrics in the text format.
func ReadMetric(metrics io.Reader, name string) (float64, error) {
	lines := bufio.NewScanner(metrics)
	for lines.Scan() {
		if is, value, _ := strings.Cut(lines.Text(), " "); is == name {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, errors.Join(fmt.Errorf("the metrics have no %s", name), lines.Err())
}

// leastSamples is the number of samples of one life of a process that show a leak: those of more
// than three rounds of faults.
const leastSamples = 9

// JudgeUsage judges the samples of one life of a process, taken at equal load. It compares the
// median of the last third with the samples at the beginning, and returns the resources that grew
// beyond their bounds.
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
