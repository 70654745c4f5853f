package checker

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
)

// Seed returns the run's seed from an environment variable, or a random one. It prints the seed, so
// that a run can be repeated.
func Seed(name string) (seed uint64, err error) {
	seed = rand.Uint64N(1 << 32)
	if s := os.Getenv(name); s != "" {
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			return 0, fmt.Errorf("%s: %w", name, err)
		}
	}
	fmt.Printf("%s=%d\n", name, seed)
	return seed, nil
}
