package bench

import (
	"fmt"
	"strconv"
)

// A keyAccount knows the last value that was put for each key, and compares what is read with it.
// Different keys may be used concurrently; one key has one writer.
type keyAccount struct {
	run  uint64
	size int
	puts []uint32 // by key; 0 is none
}

func newKeyAccount(run uint64, size, keys int) *keyAccount {
	return &keyAccount{run: run, size: size, puts: make([]uint32, keys)}
}

func keyName(key int) string { return "key." + strconv.Itoa(key) }

func keyNumber(name string, keys int) (int, bool) {
	const prefix = len("key.")
	if len(name) <= prefix {
		return 0, false
	}
	n, err := strconv.Atoi(name[prefix:])
	return n, err == nil && n >= 0 && n < keys && keyName(n) == name
}

// value fills the next value of a key into p.
func (a *keyAccount) value(key int, p []byte, at int64) {
	stamp{run: a.run, publisher: uint32(key), sequence: a.puts[key] + 1, due: at}.put(p)
}

// done enters that the value was stored.
func (a *keyAccount) done(key int) { a.puts[key]++ }

// compare returns an error for a value that is not the last one of its key. stale tells an earlier
// one from a damaged one.
func (a *keyAccount) compare(key int, value []byte) (stale bool, err error) {
	m, whole := readStamp(value)
	switch want := a.puts[key]; {
	case !whole || m.run != a.run || len(value) != a.size || m.publisher != uint32(key):
		return false, fmt.Errorf("the value of %s is damaged, or that of another key", keyName(key))
	case m.sequence < want:
		return true, fmt.Errorf("%s has its value %d, and its last one is %d", keyName(key), m.sequence, want)
	case m.sequence > want:
		return false, fmt.Errorf("%s has its value %d, and only %d were put", keyName(key), m.sequence, want)
	}
	return false, nil
}
