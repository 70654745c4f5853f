// Command toolbox is what the local cluster runs in containers of its own, in one static
// binary and without a shell:
//
//	toolbox hold          hold a pod's namespaces open and reap the orphans that land on it
//	toolbox sh SCRIPT     make or remove a volume, as the provisioner's helper pod asks
//	toolbox probe ADDR    serve the checks of test/cluster: files on a volume, pods by name
//	toolbox write FILE TEXT
//
// Called through a link named sh it acts as "toolbox sh".
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
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
	case len(args) == 3 && args[0] == "write":
		return os.WriteFile(args[1], []byte(args[2]), 0o600)
	default:
		return errors.New("usage: toolbox hold | sh SCRIPT | probe ADDRESS | write FILE TEXT")
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
	server := &http.Server{Addr: address, Handler: mux, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	fmt.Println("serving", address)
	closed := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer closed()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
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
