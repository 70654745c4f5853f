package log

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	decoder() // of all tests, so it is not made within the synctest bubble of one
	goleak.VerifyTestMain(m)
}
