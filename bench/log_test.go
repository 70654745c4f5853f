package bench

import (
	"strings"
	"testing"
	"time"
)

func TestALogsPlanIsChecked(t *testing.T) {
	good := Log{Publishers: []int{1, 16}, Readers: []int{1, 16}, Batches: []int{1, 16384}, PayloadBytes: 64, Durability: DurabilityMemory, Replicas: 1, Duration: time.Second, MostRecords: 1000}
	made, err := good.Workloads()
	if err != nil || len(made) != 4 {
		t.Fatalf("%d plans, %v", len(made), err)
	}
	if last := made[3]; last.log.publishers != 16 || last.log.readers != 16 || last.log.batch != 16384 || last.log.window != batchWindow || last.sockets() != 17 {
		t.Errorf("%+v", last.log)
	}
	if first := made[0]; first.log.window != singleWindow || first.log.reads != readWindow {
		t.Errorf("%+v", first.log)
	}
	for want, change := range map[string]func(*Log){
		"16 to 4096":        func(l *Log) { l.PayloadBytes = 12 },
		"a multiple of 8":   func(l *Log) { l.PayloadBytes = 65 },
		"give as many":      func(l *Log) { l.Readers = []int{1, 2, 3} },
		"at most 65536":     func(l *Log) { l.Batches = []int{70_000} },
		"in all":            func(l *Log) { l.Batches, l.PayloadBytes = []int{60_000}, 1024 },
		"durability is":     func(l *Log) { l.Durability = "perhaps" },
		"replicas is 6":     func(l *Log) { l.Replicas = 6 },
		"at most 0 records": func(l *Log) { l.MostRecords = 0 },
		"give at most 256":  func(l *Log) { l.Publishers = []int{1, 257} },
	} {
		bad := good
		change(&bad)
		if _, err := bad.Workloads(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}

// answerOf is what a reader gets of records by publisher and sequence.
func answerOf(key uint64, size int, records ...[2]uint64) (answer []byte) {
	for _, r := range records {
		record := make([]byte, prefixed(size))
		record[0] = byte(size)
		putRecord(record[1:], int(r[0]), r[1], key)
		answer = append(answer, record...)
	}
	return answer
}

// TestAReaderFindsMissingAndDamagedRecords: a reader compares every byte of every record of a pass.
func TestAReaderFindsMissingAndDamagedRecords(t *testing.T) {
	const key, size = 4711, 64
	all := [][2]uint64{{0, 0}, {0, 1}, {1, 0}, {0, 2}, {1, 1}}
	written := []uint64{3, 2}
	pass := newLogPass(key, size, 2)
	pass.take(answerOf(key, size, all[3:]...))
	pass.take(answerOf(key, size, all[:3]...))
	if d := pass.compare(written); d != (Deliveries{Expected: 5, Received: 5}) {
		t.Errorf("all is well, and it says %+v", d)
	}
	good := answerOf(key, size, all...)
	for i := range good {
		if i%prefixed(size) == 0 {
			continue // lengths are looked at elsewhere
		}
		damaged := append([]byte(nil), good...)
		damaged[i] ^= 0x10
		pass := newLogPass(key, size, 2)
		pass.take(damaged)
		if d := pass.compare(written); d.Unexpected == 0 {
			t.Fatalf("byte %d is damaged, and it says %+v", i, d)
		}
	}
	for _, c := range []struct {
		what    string
		records [][2]uint64
		found   func(Deliveries) bool
	}{
		{"one is missing", all[:4], func(d Deliveries) bool { return d.Lost == 1 }},
		{"one is there twice", append(all[:5:5], all[4]), func(d Deliveries) bool { return d.Duplicated == 1 }},
		{"one is another one", append(all[:4:4], [2]uint64{1, 7}), func(d Deliveries) bool { return d.Unexpected == 1 }},
		{"two are the wrong way round", [][2]uint64{{0, 1}, {0, 0}, {1, 0}, {0, 2}, {1, 1}}, func(d Deliveries) bool { return d.OutOfOrder == 1 }},
		{"one is nobody's", append(all[:5:5], [2]uint64{2, 0}), func(d Deliveries) bool { return d.Unexpected == 1 }},
	} {
		pass := newLogPass(key, size, 2)
		pass.take(answerOf(key, size, c.records...))
		if d := pass.compare(written); !c.found(d) {
			t.Errorf("%s, and it says %+v", c.what, d)
		}
	}
}

func BenchmarkCheckRecords(b *testing.B) {
	records := make([][2]uint64, 16384)
	for i := range records {
		records[i] = [2]uint64{0, uint64(i)}
	}
	answer := answerOf(1, 64, records...)
	pass := newLogPass(1, 64, 1)
	b.SetBytes(int64(len(answer)))
	for b.Loop() {
		pass.take(answer)
	}
}
