//go:build e2e && linux

package hostile

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// api sends a request of the JetStream API, and returns a refusal as an error.
func (f *force) api(nc *nats.Conn, call string, request any) error {
	data, err := json.Marshal(request)
	if err != nil {
		return err
	}
	r, err := nc.Request("$JS.API."+call, data, 10*time.Second)
	if err != nil {
		return err
	}
	var answer struct{ Error *struct{ Description string } }
	if err := json.Unmarshal(r.Data, &answer); err != nil {
		return err
	}
	if answer.Error != nil {
		return errors.New(answer.Error.Description)
	}
	return nil
}

// insist repeats a request until it is served: a busy broker may still be opening a stream, and a
// cluster electing.
func (f *force) insist(nc *nats.Conn, call string, request any) error {
	return testutil.Within(prepareTime/2, 100*time.Millisecond, call+" is served", func() error { return f.api(nc, call, request) })
}

// hostileStream makes the attacker's stream.
func hostileStream(f *force) error {
	nc, err := f.client()
	if err != nil {
		return err
	}
	defer nc.Close()
	return f.insist(nc, "STREAM.CREATE.HOSTILE", map[string]any{
		"name": "HOSTILE", "subjects": []string{"hostile.>"}, "num_replicas": len(f.Clients), "storage": "file", "retention": "limits", "duplicate_window": 120 * time.Second,
	})
}

// requests has n clients send requests of the JetStream API, each waiting for its answer.
func (f *force) requests(n int, call func(client, i int) (string, any)) error {
	return f.each(n, func(client int) error {
		nc, err := f.client()
		if err != nil {
			return err
		}
		defer nc.Close()
		for i := 0; f.ctx.Err() == nil; i++ {
			subject, request := call(client, i)
			f.sent.Add(1)
			f.fails(f.api(nc, subject, request))
		}
		return nil
	})
}

// apiFlood creates and updates streams with 126 KiB of metadata.
func apiFlood(f *force) error {
	return f.requests(8, func(client, i int) (string, any) {
		name := fmt.Sprintf("HOSTILE-%d-%d", client, i/10)
		call := "UPDATE."
		if i%10 == 0 {
			call = "CREATE."
		}
		return "STREAM." + call + name, map[string]any{
			"name": name, "subjects": []string{"hostile." + name}, "storage": "file", "retention": "limits",
			"metadata": map[string]string{"n": fmt.Sprint(i), "padding": strings.Repeat("x", 126<<10)},
		}
	})
}

// preparePulls makes a consumer that lets nearly any number of pulls wait.
func preparePulls(f *force) error {
	if err := hostileStream(f); err != nil {
		return err
	}
	nc, err := f.client()
	if err != nil {
		return err
	}
	defer nc.Close()
	return f.insist(nc, "CONSUMER.DURABLE.CREATE.HOSTILE.hostile", map[string]any{
		"stream_name": "HOSTILE", "config": map[string]any{"durable_name": "hostile", "ack_policy": "explicit", "max_waiting": 100_000_000},
	})
}

// pulls floods that consumer with pulls of an hour for a million messages.
func pulls(f *force) error {
	const request = `{"batch":1000000,"expires":3600000000000}`
	return f.each(4, func(client int) error {
		w, err := f.login()
		if err != nil {
			return err
		}
		defer w.Close()
		if _, err := fmt.Fprintf(w.Conn, "SUB _INBOX.hostile.%d.> 1\r\n", client); err != nil {
			return err
		}
		go f.listen(w)
		for i := 0; ; i++ {
			var text strings.Builder
			for n := range 100 {
				fmt.Fprintf(&text, "PUB $JS.API.CONSUMER.MSG.NEXT.HOSTILE.hostile _INBOX.hostile.%d.%d %d\r\n%s\r\n", client, i*100+n, len(request), request)
			}
			if _, err := w.Conn.Write([]byte(text.String())); err != nil {
				return err
			}
			f.sent.Add(100)
		}
	})
}

// consumerFilters creates consumers with 20,000 filters.
func consumerFilters(f *force) error {
	filters := make([]string, 20_000)
	for i := range filters {
		filters[i] = fmt.Sprintf("hostile.*.filter-%d", i)
	}
	return f.requests(4, func(client, i int) (string, any) {
		name := fmt.Sprintf("filters-%d-%d", client, i)
		return "CONSUMER.DURABLE.CREATE.HOSTILE." + name, map[string]any{
			"stream_name": "HOSTILE", "config": map[string]any{"durable_name": name, "ack_policy": "explicit", "filter_subjects": filters},
		}
	})
}

// hpub returns a message with headers.
func hpub(subject, reply, headers string) string {
	headers = "NATS/1.0\r\n" + headers + "\r\n\r\n"
	return fmt.Sprintf("HPUB %s %s %d %d\r\n%s\r\n", subject, reply, len(headers), len(headers), headers)
}

// headers has n clients publish messages with ever new headers to the attacker's stream.
func (f *force) headers(n int, message func(inbox string, client, i int) string) error {
	return f.each(n, func(client int) error {
		w, err := f.login()
		if err != nil {
			return err
		}
		defer w.Close()
		inbox := fmt.Sprint("_INBOX.hostile.", client)
		if _, err := fmt.Fprintf(w.Conn, "SUB %s 1\r\n", inbox); err != nil {
			return err
		}
		go f.listen(w)
		for i := 0; ; {
			var text strings.Builder
			for range 100 {
				text.WriteString(message(inbox, client, i))
				i++
			}
			if _, err := w.Conn.Write([]byte(text.String())); err != nil {
				return err
			}
			f.sent.Add(100)
		}
	})
}

// prepareConditions publishes to 50,000 subjects.
func prepareConditions(f *force) error {
	if err := hostileStream(f); err != nil {
		return err
	}
	nc, err := f.client()
	if err != nil {
		return err
	}
	defer nc.Close()
	for i := range 50_000 {
		if err := nc.Publish(fmt.Sprintf("hostile.s.%d.x", i), nil); err != nil {
			return err
		}
	}
	_, err = nc.Request("hostile.s.last.x", nil, prepareTime/2)
	return err
}

// conditions publishes on the condition that ever new patterns have no message yet.
func conditions(f *force) error {
	return f.headers(4, func(inbox string, client, i int) string {
		return hpub(fmt.Sprintf("hostile.s.%d-%d.y", client, i), inbox, fmt.Sprintf("Nats-Expected-Last-Subject-Sequence: 0\r\nNats-Expected-Last-Subject-Sequence-Subject: hostile.*.%d-%d.y", client, i))
	})
}

// messageIDs publishes messages with ever new ids, for the deduplication window.
func messageIDs(f *force) error {
	return f.headers(4, func(inbox string, client, i int) string {
		return hpub("hostile.ids", inbox, fmt.Sprintf("Nats-Msg-Id: %d-%d-%s", client, i, strings.Repeat("x", 64)))
	})
}

// ask floods one of Carillon's own requests, each with an inbox of its own.
func (f *force) ask(subject string, request func(client, i int) string) error {
	return f.each(4, func(client int) error {
		w, err := f.login()
		if err != nil {
			return err
		}
		defer w.Close()
		if _, err := fmt.Fprintf(w.Conn, "SUB _INBOX.hostile.%d.> 1\r\n", client); err != nil {
			return err
		}
		go f.listen(w)
		for i := 0; ; i++ {
			data := request(client, i)
			if _, err := fmt.Fprintf(w.Conn, "PUB %s _INBOX.hostile.%d.%d %d\r\n%s\r\n", subject, client, i, len(data), data); err != nil {
				return err
			}
			f.sent.Add(1)
		}
	})
}

// recordsHeld asks for records that do not come, and waits for them as long as it may.
func recordsHeld(f *force) error {
	return f.ask("$CARILLON.API.RECORDS.HOSTILE.0", func(int, int) string { return `{"offset":1000000,"wait_ms":30000}` })
}

// snapshotsHeld takes snapshots for as long as it may, and does not release them.
func snapshotsHeld(f *force) error {
	return f.ask("$CARILLON.API.SNAPSHOT.HOSTILE", func(client, i int) string {
		return fmt.Sprintf(`{"id":"hostile-%d-%d","lease_ms":600000}`, client, i)
	})
}
