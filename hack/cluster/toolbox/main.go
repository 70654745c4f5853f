// Command toolbox is what the local cluster runs in containers of its own, in one static
// binary and without a shell:
//
//	toolbox hold          hold a pod's namespaces open and reap the orphans that land on it
//	toolbox sh SCRIPT     make or remove a volume, as the provisioner's helper pod asks
//	toolbox probe ADDR    serve the checks of test/cluster: files on a volume, pods by name
//	toolbox receive ADDR ADDR DIR
//	                      take events by POST on the first address, over TLS with DIR/tls.crt and
//	                      tls.key, and list them on the second one; with DIR/ca.crt, only from
//	                      clients with a certificate of that CA
//	toolbox write FILE TEXT
//
// Called through a link named sh it acts as "toolbox sh".
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

func main() {
	args := os.Args[1:]
	if filepath.Base(os.Args[0]) == "sh" {
		args = append([]string{"sh"}, args...)
	}
	if err := run(args); err != nil {
		fmt.Fprintln(os.Stderr, "toolbox:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 1 && args[0] == "hold":
		hold()
		return nil
	case len(args) >= 2 && args[0] == "sh":
		return volume(filepath.Base(args[1]), os.Getenv("VOL_DIR"))
	case len(args) == 2 && args[0] == "probe":
		return probe(args[1])
	case len(args) == 4 && args[0] == "receive":
		return receive(args[1], args[2], args[3])
	case len(args) == 3 && args[0] == "write":
		return os.WriteFile(args[1], []byte(args[2]), 0o600)
	default:
		return errors.New("usage: toolbox hold | sh SCRIPT | probe ADDRESS | receive ADDRESS ADDRESS DIR | write FILE TEXT")
	}
}

func hold() {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	exited := make(chan os.Signal, 16)
	signal.Notify(exited, syscall.SIGCHLD)
	for {
		select {
		case <-stop:
			return
		case <-exited:
			for {
				if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
					break
				}
			}
		}
	}
}

// volume does what the provisioner's two scripts are named after. Their text is not read:
// a shell in every node's image would be there for these two commands only.
func volume(script, dir string) error {
	if !filepath.IsAbs(dir) || filepath.Clean(dir) == "/" {
		return fmt.Errorf("VOL_DIR is %q; it must name a folder below the root", dir)
	}
	switch script {
	case "setup":
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return err
		}
		return os.Chmod(dir, 0o777) // whatever the umask took away
	case "teardown":
		return os.RemoveAll(dir)
	default:
		return fmt.Errorf("there is no script %q, only setup and teardown", script)
	}
}

// probe answers GET /file?path=P, GET /resolve?name=N, GET /fetch?url=U and GET /hostname.
func probe(address string) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /hostname", func(w http.ResponseWriter, _ *http.Request) {
		name, err := os.Hostname()
		answer(w, name, err)
	})
	mux.HandleFunc("GET /file", func(w http.ResponseWriter, r *http.Request) {
		data, err := os.ReadFile(r.FormValue("path"))
		answer(w, string(data), err)
	})
	mux.HandleFunc("GET /resolve", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), 3*time.Second)
		defer cancel()
		addresses, err := net.DefaultResolver.LookupHost(ctx, r.FormValue("name"))
		answer(w, fmt.Sprint(addresses), err)
	})
	mux.HandleFunc("GET /fetch", func(w http.ResponseWriter, r *http.Request) {
		body, err := fetch(r.Context(), r.FormValue("url"))
		answer(w, body, err)
	})
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	return serve(ctx, address, mux, nil, "")
}

// serve serves until ctx ends, over TLS if there is a config.
func serve(ctx context.Context, address string, handler http.Handler, config *tls.Config, dir string) error {
	server := &http.Server{Addr: address, Handler: handler, TLSConfig: config, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second}
	closed := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer closed()
	fmt.Println("serving", address)
	var err error
	if config != nil {
		err = server.ListenAndServeTLS(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	} else {
		err = server.ListenAndServe()
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// event is a request that receive has taken. Client is the serial number of the client's
// certificate.
type event struct{ Subject, Authorization, Client, Data string }

// receive keeps in memory what it takes.
func receive(address, list, dir string) error {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca, err := os.ReadFile(filepath.Join(dir, "ca.crt")); err == nil {
		config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
		if !config.ClientCAs.AppendCertsFromPEM(ca) {
			return fmt.Errorf("%s/ca.crt has no certificate", dir)
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	var mu sync.Mutex
	taken := []event{}
	take := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, err := io.ReadAll(r.Body)
		if err != nil || r.Method != http.MethodPost {
			http.Error(w, "POST an event", http.StatusBadRequest)
			return
		}
		e := event{r.Header.Get("Ce-Subject"), r.Header.Get("Authorization"), "", string(data)}
		if len(r.TLS.PeerCertificates) > 0 {
			e.Client = r.TLS.PeerCertificates[0].SerialNumber.String()
		}
		mu.Lock()
		defer mu.Unlock()
		taken = append(taken, e)
		w.WriteHeader(http.StatusNoContent)
	})
	tell := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		_ = json.NewEncoder(w).Encode(taken)
	})
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	ended := make(chan error, 2) // either ends the other
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, one := range []func() error{
		func() error { return serve(ctx, address, take, config, dir) },
		func() error { return serve(ctx, list, tell, nil, "") },
	} {
		go func() {
			ended <- one()
			cancel()
		}()
	}
	return errors.Join(<-ended, <-ended)
}

// fetch opens a connection of its own, so that a cut shows at once.
func fetch(ctx context.Context, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	return string(body), err
}

func answer(w http.ResponseWriter, text string, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = io.WriteString(w, text)
}
