package main

import (
	"errors"
	"fmt"
	"net"

	"github.com/spf13/pflag"

	"github.com/carillon-mq/carillon/broker"
	"github.com/carillon-mq/carillon/broker/websocket"
)

// webSocket are the flags about the port for WebSocket, but for its addresses.
type webSocket struct {
	plaintext bool
	origins   []string
}

func (w *webSocket) flags(f *pflag.FlagSet) {
	f.StringSliceVar(&w.origins, "websocket-origins", nil, "web pages whose programs may connect to --websocket-listen, such as https://app.example.com, and \"same\" for those of its own host; several with commas (default all)")
}

// load completes the configuration of the port. secure: clients may use TLS.
func (w *webSocket) load(is *broker.WebSocket, secure bool) (err error) {
	switch {
	case is.Listen == "" && (w.plaintext || len(w.origins) > 0 || is.Advertise != ""):
		return usageError{errors.New("--websocket-advertise, --websocket-origins and --websocket-no-tls need --websocket-listen, the port for WebSocket")}
	case w.plaintext && !secure:
		return usageError{errors.New("--websocket-no-tls without --client-tls-dir: there is no TLS")}
	case is.Listen != "":
		if _, _, err := net.SplitHostPort(is.Listen); err != nil {
			return usageError{fmt.Errorf("--websocket-listen %q is not host:port: %w", is.Listen, err)}
		}
	}
	is.Plaintext = w.plaintext
	if is.Origins, err = websocket.ParseOrigins(w.origins); err != nil {
		return usageError{fmt.Errorf("--websocket-origins: %w", err)}
	}
	return nil
}
