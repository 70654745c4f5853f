package websocket

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
)

// SameOrigin is the word in a list of origins for pages of the host that the client connects to.
const SameOrigin = "same"

// Origins are the web pages whose programs may connect. The zero value allows all.
type Origins struct {
	same   bool
	listed []origin
}

type origin struct{ scheme, host, port string }

// ParseOrigins parses a list of URLs such as https://example.com:8443, and SameOrigin.
func ParseOrigins(list []string) (o Origins, err error) {
	for _, text := range list {
		if text == SameOrigin {
			o.same = true
			continue
		}
		is, ok := parseOrigin(text)
		if !ok {
			return o, fmt.Errorf("origin %q: want %q, or http:// or https:// with a host and perhaps a port", text, SameOrigin)
		}
		o.listed = append(o.listed, is)
	}
	return o, nil
}

// allows reports whether a page of that origin may connect to host, the Host of the request.
// Clients that are no browsers send no origin, or any that they like.
func (o *Origins) allows(from, host string, secure bool) bool {
	if from == "" || !o.same && o.listed == nil {
		return true
	}
	is, ok := parseOrigin(from)
	if !ok {
		return false
	}
	return slices.Contains(o.listed, is) || o.same && is == is.at(host) && (is.scheme == "https" || !secure)
}

// at returns the origin of pages at host, with the same scheme. A proxy may end TLS in front of
// this broker, so the scheme can't be told from the connection.
func (o origin) at(host string) origin {
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		name, port = strings.Trim(host, "[]"), ""
	}
	return origin{o.scheme, strings.ToLower(name), cmp.Or(port, defaultPort(o.scheme))}
}

func parseOrigin(text string) (origin, bool) {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		return origin{}, false
	}
	scheme := strings.ToLower(u.Scheme)
	if scheme != "http" && scheme != "https" {
		return origin{}, false
	}
	return origin{scheme, strings.ToLower(u.Hostname()), cmp.Or(u.Port(), defaultPort(scheme))}, true
}

func defaultPort(scheme string) string {
	if scheme == "https" {
		return "443"
	}
	return "80"
}
