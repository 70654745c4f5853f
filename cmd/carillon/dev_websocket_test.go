package main

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// webURLs returns the URLs of the line after the one that says that it is ready.
func (c *child) webURLs() []string {
	c.t.Helper()
	line, err := c.stdout.ReadString('\n')
	urls, found := strings.CutPrefix(strings.TrimSpace(line), "websocket: ")
	if err != nil || !found {
		c.t.Fatalf("the second line is %q, %v", line, err)
	}
	return strings.Split(urls, ",")
}

// TestDevWithWebSocket: clients of both ports exchange messages and use JetStream, with TLS and
// without. Only programs of pages that are allowed connect.
func TestDevWithWebSocket(t *testing.T) {
	t.Parallel()
	for _, secure := range []string{"false", "true"} {
		t.Run("tls="+secure, func(t *testing.T) {
			data, pages := t.TempDir(), testutil.FreeAddress(t)
			dev := startDev(t, "--data", data, "--tls="+secure, "--http-listen", pages, "--websocket-listen", "127.0.0.1:0", "--websocket-origins", "https://app.example.com,same")
			web := dev.webURLs()
			options := []nats.Option{nats.Timeout(testutil.Patience)}
			if secure == "true" {
				options = append(options, nats.RootCAs(filepath.Join(data, "tls", "ca.crt")))
			}
			var clients []*nats.Conn
			for _, url := range []string{dev.url, web[0]} {
				nc, err := nats.Connect(url, options...)
				testutil.Must(t, err)
				defer nc.Close()
				clients = append(clients, nc)
			}
			sub, err := clients[0].SubscribeSync("hello")
			testutil.Must(t, err)
			testutil.Must(t, clients[0].Flush())
			testutil.Must(t, clients[1].Publish("hello", []byte("from a browser")))
			if m, err := sub.NextMsg(testutil.Patience); err != nil || string(m.Data) != "from a browser" {
				t.Errorf("%v, %v", m, err)
			}
			js, err := clients[1].JetStream(nats.MaxWait(testutil.Patience))
			testutil.Must(t, err)
			_, err = js.AddStream(&nats.StreamConfig{Name: "orders", Subjects: []string{"orders"}})
			testutil.Must(t, err)
			if ack, err := js.Publish("orders", make([]byte, 100_000)); err != nil || ack.Sequence != 1 {
				t.Errorf("%v, %v", ack, err)
			}
			var connz struct {
				Connections []struct{ Type string }
			}
			answer, err := http.Get("http://" + pages + "/connz")
			testutil.Must(t, err)
			testutil.Must(t, json.NewDecoder(answer.Body).Decode(&connz))
			testutil.Must(t, answer.Body.Close())
			if len(connz.Connections) != 2 || connz.Connections[0].Type != "nats" || connz.Connections[1].Type != "websocket" {
				t.Errorf("/connz shows %+v", connz)
			}
			for origin, allowed := range map[string]bool{"https://app.example.com": true, "https://evil.example.com": false} {
				header := http.Header{"Origin": []string{origin}}
				nc, err := nats.Connect(web[0], append(options, nats.WebSocketConnectionHeaders(header))...)
				if (err == nil) != allowed {
					t.Errorf("a page of %s: %v", origin, err)
				}
				if err == nil {
					nc.Close()
				}
			}
		})
	}
}

// TestDevClustersWithWebSocket: a client that connects to one broker learns of the others' ports
// for WebSocket, and of no others.
func TestDevClustersWithWebSocket(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	dev := startDev(t, "--data", data, "--brokers", "2", "--websocket-listen", "127.0.0.1:0")
	web := dev.webURLs()
	nc, err := nats.Connect(web[0], nats.Timeout(testutil.Patience), nats.MaxReconnects(-1), nats.ReconnectWait(1))
	testutil.Must(t, err)
	defer nc.Close()
	soon(t, "the client knows both", func() bool { return len(nc.Servers()) == 2 })
	for _, url := range nc.Servers() {
		if !slices.Contains(web, url) {
			t.Errorf("the client was told of %s, the brokers are %s", url, web)
		}
	}
}

func TestFlagsOfWebSocketThatNeedOthers(t *testing.T) {
	t.Parallel()
	common := "--name a --cluster a/b --etcd-endpoints http://127.0.0.1:1 --data " + t.TempDir()
	for args, want := range map[string]string{
		"broker --websocket-origins same " + common:                                       "need --websocket-listen",
		"broker --websocket-advertise a:1 " + common:                                      "need --websocket-listen",
		"broker --websocket-no-tls --websocket-listen 127.0.0.1:0 " + common:              "there is no TLS",
		"broker --websocket-listen 127.0.0.1 " + common:                                   "is not host:port",
		"broker --websocket-listen 127.0.0.1:0 --websocket-origins app.example " + common: `origin "app.example"`,
		"dev --brokers 2 --websocket-listen 127.0.0.1:65535 --data " + t.TempDir():        "--websocket-listen",
		"dev --websocket-origins same --data " + t.TempDir():                              "need --websocket-listen",
	} {
		if _, errs, code := command(t, "", strings.Fields(args)...); code == 0 || !strings.Contains(errs, want) {
			t.Errorf("carillon %s: %d %s, want %q", args, code, errs, want)
		}
	}
}
