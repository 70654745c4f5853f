package topic

import (
	"testing"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// beside is how many parallel tests run at once. They use less than a twentieth of a core each, and
// wait for elections and retries. Tests aren't parallel that fail when some seconds pass between
// two steps, or that keep a core busy.
const beside = 8

func TestMain(m *testing.M) {
	testutil.RunBeside(beside)
	testutil.RunWithoutLeaks(m)
}
