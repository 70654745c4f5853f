// Command idle measures what consumers cost that nobody uses: it makes many durable pull consumers
// on each of several servers, and then compares the memory and the processor time of the servers'
// processes. bench/scripts/idle starts the servers.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

type bench struct {
	streams, consumers int // streams, and consumers of all of them
	replicas           int // of each stream
	creators           int // how many consumers are being made at a time
	messages           int // that each stream has
	settle, rest       time.Duration
	rounds             int
}

func main() {
	var b bench
	var servers []server
	flag.IntVar(&b.streams, "streams", 100, "streams")
	flag.IntVar(&b.consumers, "consumers", 10_000, "durable consumers, which the streams share")
	flag.IntVar(&b.replicas, "replicas", 1, "replicas of each stream and consumer")
	flag.IntVar(&b.messages, "messages", 10, "messages that each stream has before it gets consumers")
	flag.IntVar(&b.creators, "creators", 16, "how many consumers are being made at a time")
	flag.DurationVar(&b.settle, "settle", 20*time.Second, "how long each server gets to finish what follows the making of consumers")
	flag.DurationVar(&b.rest, "rest", 20*time.Second, "how long nothing happens in each round, to see what that costs")
	flag.IntVar(&b.rounds, "rounds", 5, "rounds of rest, of which medians are taken")
	flag.Func("server", "NAME=URLS=PIDS, with commas between URLs and between PIDs; repeat it to compare", func(text string) error {
		s, err := parseServer(text)
		servers = append(servers, s)
		return err
	})
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := b.run(ctx, servers); err != nil {
		fmt.Fprintln(os.Stderr, "idle:", err)
		os.Exit(1)
	}
}

func parseServer(text string) (server, error) {
	parts := strings.Split(text, "=")
	if len(parts) != 3 {
		return server{}, errors.New("write it as NAME=URLS=PIDS")
	}
	s := server{name: parts[0], urls: parts[1]}
	for _, pid := range strings.Split(parts[2], ",") {
		n, err := strconv.Atoi(pid)
		if err != nil {
			return s, fmt.Errorf("pid %q: %w", pid, err)
		}
		s.pids = append(s.pids, n)
	}
	return s, nil
}

// run makes the consumers of one server after another, and then lets all rest together, so that
// they have the same machine.
func (b *bench) run(ctx context.Context, servers []server) error {
	if len(servers) == 0 {
		return errors.New("name a server with --server")
	}
	fmt.Printf("%d durable pull consumers of %d streams, %d replicas\n", b.consumers, b.streams, b.replicas)
	for i := range servers {
		if err := b.prepare(ctx, &servers[i]); err != nil {
			return fmt.Errorf("%s: %w", servers[i].name, err)
		}
	}
	if err := sleep(ctx, b.settle); err != nil {
		return err
	}
	for range b.rounds {
		for i := range servers {
			servers[i].began, _ = servers[i].usage()
		}
		if err := sleep(ctx, b.rest); err != nil {
			return err
		}
		for i := range servers {
			now, err := servers[i].usage()
			if err != nil {
				return fmt.Errorf("%s: %w", servers[i].name, err)
			}
			servers[i].rounds = append(servers[i].rounds, now.since(servers[i].began))
		}
	}
	b.print(servers)
	return nil
}

// prepare makes the streams, takes the first reading, and makes the consumers.
func (b *bench) prepare(ctx context.Context, s *server) error {
	nc, err := nats.Connect(s.urls, nats.Name("idle"), nats.MaxReconnects(-1))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(30*time.Second))
	if err != nil {
		return err
	}
	err = b.each(b.streams, func(i int) error {
		name := fmt.Sprintf("idle-%d", i)
		_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{name + ".>"}, Replicas: b.replicas})
		for n := 0; n < b.messages && err == nil; n++ {
			_, err = js.Publish(ctx, fmt.Sprintf("%s.%d", name, n), []byte("a message"))
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("make the streams: %w", err)
	}
	if err := sleep(ctx, b.settle/2); err != nil {
		return err
	}
	if s.empty, err = s.usage(); err != nil {
		return err
	}
	began := time.Now()
	err = b.each(b.consumers, func(i int) error {
		_, err := js.CreateConsumer(ctx, fmt.Sprintf("idle-%d", i%b.streams), jetstream.ConsumerConfig{
			Durable: fmt.Sprintf("consumer-%d", i), AckPolicy: jetstream.AckExplicitPolicy,
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("make the consumers: %w", err)
	}
	s.making = time.Since(began)
	return nil
}

// each does n things, several at a time, and returns the first error.
func (b *bench) each(n int, do func(int) error) error {
	var workers sync.WaitGroup
	failed := make(chan error, b.creators)
	for w := range b.creators {
		workers.Go(func() {
			for i := w; i < n; i += b.creators {
				if err := do(i); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	workers.Wait()
	close(failed)
	return <-failed
}

func (b *bench) print(servers []server) {
	const mib = 1 << 20
	fmt.Printf("%-12s %8s %12s %12s %14s %12s %10s\n", "", "made in", "without", "at rest", "per consumer", "processor", "ratios")
	first := servers[0].median()
	for i := range servers {
		s := &servers[i]
		m := s.median()
		added := m.memory - s.empty.memory
		fmt.Printf("%-12s %7.1fs %8.1f MiB %8.1f MiB %10.2f KiB %10.2f %% %s\n", s.name, s.making.Seconds(),
			float64(s.empty.memory)/mib, float64(m.memory)/mib, float64(added)/float64(b.consumers)/1024, 100*m.share,
			fmt.Sprintf("memory 1:%.2f, added memory 1:%.2f, processor 1:%.2f", float64(m.memory)/float64(first.memory),
				float64(added)/float64(first.memory-servers[0].empty.memory), m.share/first.share))
	}
	fmt.Println("memory is the resident memory of all processes that is no file's; the processor's time is a share of one core, the median of the rounds;")
	fmt.Println("ratios are to the first server")
}

func (s *server) median() round {
	memory, share := make([]int64, 0, len(s.rounds)), make([]float64, 0, len(s.rounds))
	for _, r := range s.rounds {
		memory, share = append(memory, r.memory), append(share, r.share)
	}
	slices.Sort(memory)
	slices.Sort(share)
	return round{memory: memory[len(memory)/2], share: share[len(share)/2]}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
