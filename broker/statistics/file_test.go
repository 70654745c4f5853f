package statistics

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

var stored = Segment{Log: "orders-0", Secret: 11, Base: 1, Generation: 3, End: 5, Epoch: 2, Bytes: 900}

// fileOf is the file of a segment after scans have collected values for paths, in that order.
func fileOf(s Segment, file []byte, paths ...string) []byte {
	var t Table
	for n, path := range paths {
		for range 2 {
			collect(&t, s, path, 7, 8, 7, uint64(10+n))
		}
		file = t.File(s, path, file)
	}
	return file
}

// TestAFileSaysWhatWasCollected: to another process, of the newest paths.
func TestAFileSaysWhatWasCollected(t *testing.T) {
	var paths []string
	for n := range mostPaths + 2 {
		paths = append(paths, fmt.Sprint("json.", n))
	}
	// The third one is collected again, so the others make room first.
	file := fileOf(stored, fileOf(stored, nil, append(paths[:mostPaths:mostPaths], paths[2])...), paths[mostPaths:]...)
	for n, path := range paths {
		var table Table
		if err := table.Load(stored, path, file); err != nil || !table.Has(stored, path) {
			t.Fatal(err)
		}
		latest, ok := table.Excludes(stored, path, []uint64{9})
		_, wrong := table.Excludes(stored, path, []uint64{9, 7})
		if want := n > 1; ok != want || wrong || ok && latest < 8 {
			t.Errorf("%s: excluded %t, %t; latest %d", path, ok, wrong, latest)
		}
		if is := table.Stats(); is.Loaded > 1 || ok != (is.Loaded == 1) || is.Unusable > 0 {
			t.Errorf("%+v", is)
		}
		// What the file says nothing of is collected by the second scan, as ever.
		for range 2 {
			collect(&table, stored, path, 1, 2, 3, 4)
		}
		if _, ok := table.Excludes(stored, path, []uint64{9}); !ok {
			t.Errorf("%s is not collected", path)
		}
	}
	var table Table
	collect(&table, stored, "json.a", 1, 2, 3, 4)
	if table.File(stored, "json.a", file) != nil || table.File(stored, "json.b", file) != nil {
		t.Error("there is a file of what is not known")
	}
	long := strings.Repeat("p", maxPathBytes+1)
	if fileOf(stored, nil, long) != nil || fileOf(stored, nil, long[1:]) == nil {
		t.Error("the length of paths is not bounded")
	}
}

// TestAFileIsUsedOnlyForItsContent: a segment that was compacted, truncated, repaired or replaced
// differs in something. A file of the former content says nothing, and is replaced.
func TestAFileIsUsedOnlyForItsContent(t *testing.T) {
	file := fileOf(stored, nil, "json.a")
	for name, change := range map[string]func(s *Segment){
		"secret": func(s *Segment) { s.Secret++ }, "base": func(s *Segment) { s.Base++ },
		"generation": func(s *Segment) { s.Generation++ }, "end": func(s *Segment) { s.End++ },
		"epoch": func(s *Segment) { s.Epoch++ }, "bytes": func(s *Segment) { s.Bytes++ },
	} {
		other := stored
		change(&other)
		var table Table
		if err := table.Load(other, "json.a", file); !errors.Is(err, ErrFormer) {
			t.Errorf("other %s: %v", name, err)
		}
		if _, ok := table.Excludes(other, "json.a", []uint64{9}); ok || table.Stats().Unusable != 1 {
			t.Errorf("other %s: excluded %t, %+v", name, ok, table.Stats())
		}
		if name == "base" || name == "end" {
			continue // collect collects as many records as stored has
		}
		now := fileOf(other, file, "json.b")
		if paths, err := decode(&other, now); err != nil || len(paths) != 1 || paths[0].path != "json.b" {
			t.Errorf("other %s: the new file has %v, %v", name, paths, err)
		}
	}
}

// TestADamagedFileSaysNothing: whatever byte is wrong, wherever it ends.
func TestADamagedFileSaysNothing(t *testing.T) {
	file := fileOf(stored, nil, "json.a", "json.b")
	unusable := func(what string, file []byte, want error) {
		t.Helper()
		var table Table
		err := table.Load(stored, "json.a", file)
		if _, ok := table.Excludes(stored, "json.a", []uint64{9}); ok || err == nil || want != nil && !errors.Is(err, want) {
			t.Fatalf("%s: %t, %v", what, ok, err)
		}
	}
	for n := range file {
		unusable(fmt.Sprint(n, " bytes"), file[:n], nil)
		for bit := range 8 {
			wrong := slices.Clone(file)
			wrong[n] ^= 1 << bit
			unusable(fmt.Sprint("bit ", n, ".", bit), wrong, nil)
		}
	}
	later := slices.Clone(file)
	later[4]++
	unusable("a later version", later, ErrVersion)
	unusable("more", append(slices.Clone(file), 0), ErrDamaged)
	unusable("zeros", make([]byte, len(file)), ErrDamaged)
}

// TestTheLargestFile: it has the most values of the most paths.
func TestTheLargestFile(t *testing.T) {
	var table Table
	large := stored
	large.End = large.Base + maxValues
	values := make([]uint64, maxValues)
	for n := range values {
		values[n] = uint64(n + 1)
	}
	var file []byte
	for n := range mostPaths + 1 {
		path := fmt.Sprintf("%0*d", maxPathBytes, n)
		for range 2 {
			collect(&table, large, path, values...)
		}
		file = table.File(large, path, file)
	}
	if paths, err := decode(&large, file); err != nil || len(paths) != mostPaths || len(file) != MaxFileBytes {
		t.Errorf("%d paths, %d bytes: %v", len(paths), len(file), err)
	}
}

// FuzzFile: what is accepted is what encode makes of what it says, in bounded memory.
func FuzzFile(f *testing.F) {
	f.Add(fileOf(stored, nil, "json.a", "json.b"), false)
	f.Add(fileOf(stored, nil, "json.a", "json.b"), true)
	f.Add(encode(&stored, nil), true)
	f.Add([]byte{}, true)
	f.Fuzz(func(t *testing.T, data []byte, correct bool) {
		if correct { // else hardly anything gets behind the checksum
			data = sealed(data)
		}
		paths, err := decode(&stored, data)
		if err != nil {
			return
		}
		again := encode(&stored, paths)
		if !reflect.DeepEqual(again, data) || len(paths) > mostPaths {
			t.Fatalf("%x is accepted, %x is made of it", data, again)
		}
		var table Table
		if err := table.Load(stored, "json.a", data); err != nil {
			t.Fatal(err)
		}
		for _, p := range paths {
			if len(p.values) == 0 || len(p.values) > maxValues || !slices.IsSorted(p.values) {
				t.Fatalf("%s has %d values", p.path, len(p.values))
			}
		}
	})
}

// sealed returns data with the header of the segment stored, and a right checksum.
func sealed(data []byte) []byte {
	data = slices.Clone(data)
	if len(data) < headerBytes+sumBytes {
		return data
	}
	paths := int(le.Uint32(data[56:]))
	copy(data, appendHeader(nil, &stored, paths))
	data = data[:len(data)-sumBytes]
	return le.AppendUint32(data, checksum(data))
}
