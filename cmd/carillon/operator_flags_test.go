package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"

	"github.com/carillon-mq/carillon/broker"
	"github.com/carillon-mq/carillon/broker/env/testca"
	"github.com/carillon-mq/carillon/broker/session"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// argsOf returns the arguments of the containers in a golden file of controllers/build, by
// subcommand.
func argsOf(t *testing.T, path string) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(path)
	testutil.Must(t, err)
	all := map[string][]string{}
	for document := range strings.SplitSeq(string(text), "---\n") {
		set := &appsv1.StatefulSet{}
		testutil.Must(t, yaml.Unmarshal([]byte(document), set))
		for _, c := range set.Spec.Template.Spec.Containers {
			all[c.Args[0]] = c.Args[1:]
		}
	}
	return all
}

// TestPodsTakeTheFlagsOfTheOperator: what the operator writes into the pods is what the subcommands
// know.
func TestPodsTakeTheFlagsOfTheOperator(t *testing.T) {
	files, err := filepath.Glob("../../controllers/build/testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files (%v)", err)
	}
	for _, file := range files {
		args := argsOf(t, file)
		for name, flags := range map[string]*pflag.FlagSet{"broker": newBrokerCommand().Flags(), "coordinator": newCoordinatorCommand().Flags()} {
			if len(args[name]) == 0 {
				t.Fatalf("%s has no %s", file, name)
			}
			if err := flags.Parse(args[name]); err != nil {
				t.Errorf("%s: carillon %s: %v", file, name, err)
			}
		}
	}
}

// TestBrokersTakeTheFlagsOfTLSTogether: the golden file with spec.tls and spec.websocket has a
// combination that the broker accepts, and that means what the manifest says.
func TestBrokersTakeTheFlagsOfTLSTogether(t *testing.T) {
	args := argsOf(t, "../../controllers/build/testdata/tls.yaml")["broker"]
	dir := t.TempDir()
	testca.New(t).Issue(t, dir)
	at := slices.IndexFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--client-tls-dir=") })
	if at < 0 {
		t.Fatalf("no --client-tls-dir in %q", args)
	}
	args[at] = "--client-tls-dir=" + dir
	var secure clientTLS
	var web webSocket
	flags := pflag.NewFlagSet("broker", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	config := broker.WebSocket{}
	flags.StringVar(&config.Listen, "websocket-listen", "", "")
	secure.flags(flags)
	web.flags(flags)
	testutil.Must(t, flags.Parse(args))
	tls, err := secure.load()
	if err != nil || !tls.Verify || tls.Optional || tls.First != session.FirstAuto {
		t.Errorf("TLS is %+v, %v", tls, err)
	}
	if err := web.load(&config, true); err != nil || config.Plaintext || config.Listen != ":8080" {
		t.Errorf("WebSocket is %+v, %v", config, err)
	}
}
