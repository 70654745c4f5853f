package filter

import (
	"runtime"
	"testing"

	"github.com/carillon-mq/carillon/internal/testutil"
)

func TestEqualExpressionsInUseShareAFilter(t *testing.T) {
	one, err := Shared("json.shared == 1")
	testutil.Must(t, err)
	two, err := Shared("json.shared == 1")
	testutil.Must(t, err)
	if one != two {
		t.Error("two filters")
	}
	if _, err := Shared("json.shared =="); err == nil {
		t.Error("a bad expression is accepted")
	}
	runtime.KeepAlive(one)
	testutil.EventuallyTrue(t, "it is forgotten once it is not used", func() bool {
		runtime.GC()
		shared.mu.Lock()
		defer shared.mu.Unlock()
		_, known := shared.of["json.shared == 1"]
		return !known
	})
}
