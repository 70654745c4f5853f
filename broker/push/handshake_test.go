package push

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/env/testca"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// strict is an endpoint that asks for client certificates, and the serial numbers of those that its
// requests had.
type strict struct {
	*httptest.Server
	mu  sync.Mutex
	got []string
}

func (s *strict) serials() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.got...)
}

// serveStrict starts an endpoint with a certificate of ca. It answers with status where clients
// without a certificate get that far.
func serveStrict(t *testing.T, ca *testca.CA, version uint16, auth tls.ClientAuthType, status int) *strict {
	dir := t.TempDir()
	ca.Issue(t, dir)
	own, err := tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	testutil.Must(t, err)
	s := &strict{}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TLS.PeerCertificates) == 0 {
			http.Error(w, "No required SSL certificate was sent", status)
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.got = append(s.got, r.TLS.PeerCertificates[0].SerialNumber.String())
	}))
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(ca.PEM)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{own}, ClientAuth: auth, ClientCAs: clients, MinVersion: version, MaxVersion: version}
	s.Config.ErrorLog = quiet
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// keepPair issues a client certificate into the files me_tls.crt and me_tls.key, and returns its
// serial number.
func keepPair(t *testing.T, ca *testca.CA, dir string, changed time.Time, options ...testca.Options) string {
	t.Helper()
	at := t.TempDir()
	issued := ca.Issue(t, at, options...)
	for _, name := range []string{"tls.crt", "tls.key"} {
		content, err := os.ReadFile(filepath.Join(at, name))
		testutil.Must(t, err)
		keep(t, dir, "me_"+name, string(content), changed)
	}
	return issued.SerialNumber.String()
}

func TestAnEndpointGetsTheClientCertificateAndItsRenewal(t *testing.T) {
	for name, version := range map[string]uint16{"TLS 1.2": tls.VersionTLS12, "TLS 1.3": tls.VersionTLS13} {
		t.Run(name, func(t *testing.T) {
			s, dir := secretService(t)
			ca := testca.New(t)
			server := serveStrict(t, ca, version, tls.RequireAndVerifyClientCert, 0)
			now := time.Now()
			keep(t, dir, "ca_crt", string(ca.PEM), now)
			first := keepPair(t, ca, dir, now)
			spec := to(server.URL)
			spec.Push.TLS = &coordination.PushTLS{CA: "ca_crt", Certificate: "me_tls.crt", Key: "me_tls.key"}
			o := subscribe(t, s, spec)
			o.give("a")
			o.awaitAcks(1)
			second := keepPair(t, ca, dir, now.Add(time.Second))
			o.give("a")
			o.awaitAcks(2)
			if got := server.serials(); len(got) != 2 || got[0] != first || got[1] != second {
				t.Errorf("the endpoint got the certificates %q, want %s and %s", got, first, second)
			}
		})
	}
}

func TestAnEndpointThatAsksForACertificateAndGetsNoneIsExplained(t *testing.T) {
	const none = "the endpoint asks for a client certificate and gets none (name a Secret with one in delivery.push.tls.certificateSecretRef)"
	ca, others := testca.New(t), testca.New(t)
	ended := time.Now().Add(-time.Minute).UTC()
	for what, c := range map[string]struct {
		version uint16
		auth    tls.ClientAuthType
		status  int
		issue   func(t *testing.T, dir string) // the client certificate; nil: none
		want    string
		reason  string
		counts  bool // it is the record that may be refused
	}{
		"TLS 1.2":            {tls.VersionTLS12, tls.RequireAndVerifyClientCert, 0, nil, none + ": remote error: tls: ", reasonUnreachable, false},
		"TLS 1.3":            {tls.VersionTLS13, tls.RequireAndVerifyClientCert, 0, nil, none + ": remote error: tls: certificate required", reasonUnreachable, false},
		"told by its answer": {tls.VersionTLS13, tls.RequestClientCert, http.StatusBadRequest, nil, none + ": 400 Bad Request: No required SSL certificate was sent", reasonRefused, true},
		"failing":            {tls.VersionTLS13, tls.RequestClientCert, http.StatusInternalServerError, nil, "requests: 500 Internal Server Error", reasonRefused, true},
		"of another CA": {tls.VersionTLS13, tls.RequireAndVerifyClientCert, 0, func(t *testing.T, dir string) {
			keepPair(t, others, dir, time.Now())
		}, "the endpoint got the client certificate of Secret me: remote error: tls: ", reasonUnreachable, false},
		"ended": {tls.VersionTLS13, tls.RequireAndVerifyClientCert, 0, func(t *testing.T, dir string) {
			keepPair(t, ca, dir, time.Now(), testca.Options{NotAfter: ended})
		}, "the endpoint got the client certificate of Secret me, which ended on " + ended.Format(time.DateTime) + ": remote error: tls: ", reasonUnreachable, false},
	} {
		t.Run(what, func(t *testing.T) {
			s, dir := secretService(t)
			server := serveStrict(t, ca, c.version, c.auth, c.status)
			keep(t, dir, "ca_crt", string(ca.PEM), time.Now())
			spec := to(server.URL)
			spec.Push.TLS = &coordination.PushTLS{CA: "ca_crt"}
			if c.issue != nil {
				c.issue(t, dir)
				spec.Push.TLS.Certificate, spec.Push.TLS.Key = "me_tls.crt", "me_tls.key"
			}
			o := subscribe(t, s, spec)
			o.give("a")
			testutil.EventuallyTrue(t, "the endpoint is not reached", func() bool { return o.endpoint.Info().Reason != "" })
			if i := o.endpoint.Info(); i.Reason != c.reason || !strings.Contains(i.Trouble, c.want) {
				t.Errorf("it is %s: %s, want %s: %s", i.Reason, i.Trouble, c.reason, c.want)
			}
			batch, err := s.prepare(spec.Push)
			testutil.Must(t, err)
			if a := s.post(t.Context(), spec.Push, batch, http.Header{}, make([]byte, 4<<20)); a.took != c.counts || a.kind == unavailable && !strings.Contains(a.text, c.want) {
				t.Errorf("whether a large record is at fault: %t, want %t: %s", a.took, c.counts, a.text)
			}
		})
	}
}

// TestAnAddedCertificateIsTriedAtOnce: the circuit that was opened for want of it does not hold it
// up.
func TestAnAddedCertificateIsTriedAtOnce(t *testing.T) {
	s, dir := secretService(t)
	ca := testca.New(t)
	server := serveStrict(t, ca, tls.VersionTLS13, tls.RequireAndVerifyClientCert, 0)
	keep(t, dir, "ca_crt", string(ca.PEM), time.Now())
	keepPair(t, ca, dir, time.Now())
	spec := to(server.URL)
	spec.Push.TLS = &coordination.PushTLS{CA: "ca_crt"}
	o := subscribe(t, s, spec)
	o.give("a")
	testutil.EventuallyTrue(t, "the circuit is open", func() bool { return !o.endpoint.Info().Retry.IsZero() })
	again := to(server.URL)
	again.Push.TLS = &coordination.PushTLS{CA: "ca_crt", Certificate: "me_tls.crt", Key: "me_tls.key"}
	o.endpoint.Respecify(&again)
	if i := o.endpoint.Info(); i.Reason != "" || !i.Retry.IsZero() {
		t.Errorf("it is %+v", i)
	}
	o.awaitAcks(1)
}

func TestACertificateThatDoesNotFitItsKeyIsMissing(t *testing.T) {
	s, dir := secretService(t)
	ca := testca.New(t)
	server := serveStrict(t, ca, tls.VersionTLS13, tls.RequireAndVerifyClientCert, 0)
	keep(t, dir, "ca_crt", string(ca.PEM), time.Now())
	keepPair(t, ca, dir, time.Now())
	former, err := os.ReadFile(filepath.Join(dir, "me_tls.key"))
	testutil.Must(t, err)
	keepPair(t, ca, dir, time.Now().Add(time.Second))
	spec := to(server.URL)
	spec.Push.TLS = &coordination.PushTLS{CA: "ca_crt", Certificate: "me_tls.crt", Key: "me_tls.key"}
	for text, prepare := range map[string]func(){
		"the client certificate of Secret me can't be used with its key":                      func() { keep(t, dir, "me_tls.key", string(former), time.Now().Add(2*time.Second)) },
		"the key of the client certificate is not there: Secret me needs the key tls.key and": func() { testutil.Must(t, os.Remove(filepath.Join(dir, "me_tls.key"))) },
	} {
		prepare()
		o := subscribe(t, s, spec)
		o.give("a")
		testutil.EventuallyTrue(t, text, func() bool {
			i := o.endpoint.Info()
			return i.Reason == reasonMissing && strings.Contains(i.Trouble, text)
		})
		if o.attempts[1] != 0 {
			t.Error("it counted as an attempt")
		}
	}
}
