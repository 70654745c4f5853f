package testutil

import (
	"flag"
	"strconv"
)

// RunBeside has up to n of a package's parallel tests run at once, however few cores there are. It
// is for packages whose tests wait for most of their time, and is called by TestMain, before the
// tests. The flag -parallel goes before it.
func RunBeside(n int) {
	if !flag.Parsed() {
		flag.Parse()
	}
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if given {
		return
	}
	if err := flag.Set("test.parallel", strconv.Itoa(n)); err != nil {
		panic(err) // there is no such flag: this is no test
	}
}
