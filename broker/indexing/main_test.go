package indexing

import (
	"testing"

	"github.com/carillon-mq/carillon/internal/testutil"
)

func TestMain(m *testing.M) { testutil.RunWithoutLeaks(m) }
