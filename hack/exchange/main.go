// Command exchange publishes and receives through the server at a URL, with nats.go as it is,
// and says what it did: the step of the demo that a user would do next.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/carillon-mq/carillon/internal/selftest"
)

const timeout = time.Minute

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: exchange URL")
		os.Exit(2)
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), timeout, fmt.Errorf("not done within %s", timeout))
	defer cancel()
	say := func(format string, args ...any) { fmt.Printf(format+"\n", args...) }
	if err := selftest.Messages(ctx, os.Args[1], say); err != nil {
		fmt.Fprintln(os.Stderr, "exchange:", err)
		os.Exit(1)
	}
}
