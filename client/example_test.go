package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/broker"
	"github.com/carillon-mq/carillon/broker/limits"
	"github.com/carillon-mq/carillon/client"
	"github.com/carillon-mq/carillon/coordinator"
)

// exampleConnection is a connection to a broker with a Topic "ticks", as a program has one.
func exampleConnection() (nc *nats.Conn, end func()) {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	local, err := coordinator.StartLocal(ctx, dir+"/etcd", nil)
	if err != nil {
		log.Fatal(err)
	}
	profile, err := limits.ForProfile("small")
	if err != nil {
		log.Fatal(err)
	}
	ready, ended := make(chan string, 1), make(chan struct{})
	life, stop := context.WithCancel(ctx)
	go func() {
		defer close(ended)
		if err := broker.Run(life, broker.Config{
			Name: "main-0", Cluster: "local/example", Data: dir + "/broker", Endpoints: local.Endpoints(), Profile: profile,
			Client: broker.Address{Listen: "127.0.0.1:0"}, Route: broker.Address{Listen: "127.0.0.1:0"}, LameDuck: time.Millisecond,
			Ready: func(address, _ string) { ready <- address },
		}); err != nil {
			log.Fatal(err)
		}
	}()
	if nc, err = nats.Connect("nats://"+<-ready, nats.Timeout(time.Minute)); err != nil {
		log.Fatal(err)
	}
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(time.Minute))
	if err != nil {
		log.Fatal(err)
	}
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "ticks", Subjects: []string{"ticks.>"}}); err != nil {
		log.Fatal(err)
	}
	return nc, func() {
		nc.Close()
		stop()
		<-ended
		cancel()
		_ = local.Close()
		_ = os.RemoveAll(dir)
	}
}

func Example() {
	nc, end := exampleConnection()
	defer end()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	p, err := client.NewPublisher(nc, "ticks.eu", client.PublisherOptions{})
	if err != nil {
		log.Fatal(err)
	}
	for i := range 100_000 {
		if err := p.Publish(fmt.Appendf(nil, "tick %d", i)); err != nil {
			log.Fatal(err)
		}
	}
	if err := p.Close(ctx); err != nil { // nil: all of them are kept
		log.Fatal(err)
	}

	r, err := client.NewReader(nc, "ticks", 0, 99_999, client.ReaderOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer r.Close()
	for range 2 {
		record, err := r.Next(ctx)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%d %s\n", record.Offset, record.Data)
	}
	fmt.Println("go on at", r.Offset())
	// Output:
	// 99999 tick 99998
	// 100000 tick 99999
	// go on at 100001
}

func ExampleTakeSnapshot() {
	nc, end := exampleConnection()
	defer end()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	publish := func(n int) {
		p, err := client.NewPublisher(nc, "ticks.eu", client.PublisherOptions{})
		if err != nil {
			log.Fatal(err)
		}
		for range n {
			_ = p.Publish([]byte("tick")) // Close says what went wrong
		}
		if err := p.Close(ctx); err != nil {
			log.Fatal(err)
		}
	}

	publish(1000)
	s, err := client.TakeSnapshot(ctx, nc, "ticks", client.SnapshotOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close(ctx)
	publish(500) // not in it

	records := 0
	for _, shard := range s.Shards() {
		r, err := s.Reader(shard.Number, 0, client.ReaderOptions{})
		if err != nil {
			log.Fatal(err)
		}
		for {
			b, err := r.Batch(ctx)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				log.Fatal(err)
			}
			records += b.Count
		}
		_ = r.Close()
	}
	fmt.Println(records, "records")
	// Output: 1000 records
}

func ExampleQuery() {
	nc, end := exampleConnection()
	defer end()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	room := func(sensor, room string) {
		request := fmt.Sprintf(`{"subject":%q,"set":{"room":%q}}`, sensor, room)
		if _, err := nc.RequestWithContext(ctx, "$CARILLON.API.ATTRIBUTES.SET", []byte(request)); err != nil {
			log.Fatal(err)
		}
	}

	room("sensors.7", "410")
	q, err := client.Query(ctx, nc, client.QueryOptions{Where: `attributes.room == "410"`})
	if err != nil {
		log.Fatal(err)
	}
	defer q.Close()
	for e, err := range q.Events(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		switch e.Kind {
		case client.EventNew:
			fmt.Println("new", e.Subject)
		case client.EventReady: // what changes from now on is told, too
			room("sensors.8", "410")
			_ = nc.Publish("sensors.8", []byte("21 degrees"))
		case client.EventMessage:
			fmt.Println("message", e.Subject, string(e.Data))
			room("sensors.7", "411")
		case client.EventDel:
			fmt.Println("del", e.Subject)
			return
		}
	}
	// Output:
	// new sensors.7
	// new sensors.8
	// message sensors.8 21 degrees
	// del sensors.7
}
