package filter

import (
	"runtime"
	"sync"
	"weak"
)

// shared are the Filters in use that Shared returned, by their expression.
var shared = struct {
	mu sync.Mutex
	of map[string]weak.Pointer[Filter]
}{of: map[string]weak.Pointer[Filter]{}}

// Shared is CompileStored for a Filter that is kept: equal expressions have the same Filter while
// one holds it. So an expression of thousands of readers takes the memory of one, and pointers say
// whether two of them are equal.
func Shared(text string) (*Filter, error) {
	if f := sharedFilter(text); f != nil {
		return f, nil
	}
	f, err := CompileStored(text)
	if err != nil {
		return nil, err
	}
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if other := shared.of[text].Value(); other != nil {
		return other, nil
	}
	shared.of[text] = weak.Make(f)
	runtime.AddCleanup(f, forget, text)
	return f, nil
}

func sharedFilter(text string) *Filter {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	return shared.of[text].Value()
}

// forget removes a Filter that was freed, unless there is an equal one again.
func forget(text string) {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.of[text].Value() == nil {
		delete(shared.of, text)
	}
}
