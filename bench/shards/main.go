// Command shards makes many Topics of three replicas on a cluster of three brokers, and measures
// what they cost: time, memory, files, work at rest; when a broker dies, comes back, and all start
// at once. bench/scripts/shards starts the cluster.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"
)

type bench struct {
	cluster
	topics, shards int // Topics, and shards of each
	creators       int
	rest           time.Duration
	publishTo      int
	patience       time.Duration
	began          time.Time
	retries        atomic.Int64 // of Topics that could not be made at once
}

func main() {
	var b bench
	var urls, brokers, coordinators string
	flag.StringVar(&b.dir, "dir", "", "folder of the cluster: broker-N/ and coordinator-N/, each with a file pid")
	flag.StringVar(&urls, "servers", "", "URLs for clients, with commas")
	flag.StringVar(&brokers, "brokers", "", "the brokers' HTTP addresses, with commas")
	flag.StringVar(&coordinators, "coordinators", "", "the coordinators' HTTP addresses, with commas")
	flag.IntVar(&b.topics, "topics", 10_000, "Topics")
	flag.IntVar(&b.shards, "shards", 1, "shards of each")
	flag.IntVar(&b.creators, "creators", 64, "how many Topics are being made at a time")
	flag.DurationVar(&b.rest, "rest", time.Minute, "how long nothing happens, to see what that costs")
	flag.IntVar(&b.publishTo, "publish-to", 1000, "to how many Topics is published in the end")
	flag.DurationVar(&b.patience, "patience", 10*time.Minute, "how long one phase may take")
	flag.Parse()
	b.urls, b.brokers, b.coordinators = urls, strings.Split(brokers, ","), strings.Split(coordinators, ",")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := b.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "shards:", err)
		os.Exit(1)
	}
}

func (b *bench) total() int { return b.topics * b.shards }

func (b *bench) say(format string, args ...any) {
	fmt.Printf("%7.1fs  %s\n", time.Since(b.began).Seconds(), fmt.Sprintf(format, args...))
}

func (b *bench) run(ctx context.Context) error {
	b.began = time.Now()
	b.say("%d Topics of %d shards and 3 replicas, Synced", b.topics, b.shards)
	b.footprint("empty")
	for _, phase := range []func(context.Context) error{b.make, b.idle, b.kill, b.bringBack, b.restartAll, b.publish} {
		if err := phase(ctx); err != nil {
			b.footprint("at the end")
			return err
		}
	}
	return nil
}

func (b *bench) make(ctx context.Context) error {
	began := time.Now()
	if err := b.create(ctx); err != nil {
		return err
	}
	b.say("MADE in %.1f s, %d were asked for again", time.Since(began).Seconds(), b.retries.Load())
	if err := b.whole(ctx, "MADE", began, 3); err != nil {
		return err
	}
	b.footprint("all made")
	return nil
}

// whole waits until so many brokers serve all shards between them, and then until all replicas of
// them are in sync.
func (b *bench) whole(ctx context.Context, what string, began time.Time, brokers int) error {
	served := false
	for limit := began.Add(b.patience); ; {
		s, err := b.standing(brokers)
		if err == nil && s.open == b.total() && !served {
			served = true
			b.say("%s: all served after %.1f s", what, time.Since(began).Seconds())
		}
		// Each shard is followed by all others, of those that are there; whose set is full is
		// counted by its leader.
		if err == nil && served && s.copying == b.total()*(brokers-1) && (brokers < 3 || s.short == 0) {
			b.say("%s: all in sync after %.1f s", what, time.Since(began).Seconds())
			return nil
		}
		if time.Now().After(limit) {
			return fmt.Errorf("%s: not whole after %v: %+v, %w", what, b.patience, s, err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (b *bench) idle(ctx context.Context) error {
	select { // what follows the making of Topics comes to its end
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(b.rest / 4):
	}
	before := b.meters()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(b.rest):
	}
	b.rates("AT REST", before, b.meters())
	b.footprint("at rest")
	return nil
}

func (b *bench) kill(ctx context.Context) error {
	if err := os.WriteFile(b.hold(), nil, 0o600); err != nil {
		return err
	}
	led := b.led(0)
	began := time.Now()
	if err := b.signal("broker-0"); err != nil {
		return err
	}
	b.say("KILLED broker-0, which led %d shards", led)
	if err := b.whole(ctx, "KILLED", began, 2); err != nil {
		return err
	}
	b.footprint("without broker-0")
	return nil
}

func (b *bench) hold() string { return filepath.Join(b.dir, "broker-0", "hold") }

func (b *bench) bringBack(ctx context.Context) error {
	began := time.Now()
	if err := os.Remove(b.hold()); err != nil {
		return err
	}
	if err := b.whole(ctx, "BACK", began, 3); err != nil {
		return err
	}
	b.footprint("broker-0 is back")
	return nil
}

func (b *bench) restartAll(ctx context.Context) error {
	began := time.Now()
	for _, name := range []string{"broker-0", "broker-1", "broker-2"} {
		if err := b.signal(name); err != nil {
			return err
		}
	}
	b.say("KILLED all three brokers")
	if err := b.whole(ctx, "ALL STARTED", began, 3); err != nil {
		return err
	}
	b.footprint("all started again")
	return nil
}
