package session_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/limits"
	"github.com/carillon-mq/carillon/broker/login"
	"github.com/carillon-mq/carillon/broker/session"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestTranscripts: a transcript in testdata tells one story of clients and a server, line by line:
//
//	C1: PUB a 2          client 1 sends the line and a CRLF, in one piece with those that follow;
//	                     the first mention connects it
//	C1> PUB a            client 1 sends these bytes and no CRLF
//	S1: PONG             the next bytes that client 1 receives are this line and a CRLF
//	S1: INFO {"ldm":true}  ... an INFO line with these fields, among others; null: not there
//	S1: (closed)         ... the end of the connection
//	S1|S2: MSG a 1 2     one of the clients receives this, the others nothing
//	S1?: MSG a 1 2       the messages of consecutive such lines come in any order
//	! lame duck          the server is told to leave
//	[nats-server] S1: …  this line only holds there; [carillon], here
//	# server: user=u …   options that the server is started with; users=NAME are those of
//	                     testdata/users/NAME.json
//	# …                  a comment
//
// \r \n \t \0 and \\ stand for those bytes, {x*100} for x repeated 100 times. The first INFO is
// skipped unless a line expects it. At the end every open connection must answer a PING, with
// nothing else before.
//
// The default server is this package's, in the same process. CARILLON_TRANSCRIPT_SERVER names
// another one: host:port of a running server (transcripts with server options are skipped), or the
// path of a nats-server, which is started for every transcript.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts in testdata: %v", err)
	}
	start, peer := transcriptServer(t)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		script, err := parseTranscript(string(text), peer)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if start == nil && script.needsOwnServer() {
			continue
		}
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			if start == nil { // the transcripts share one server and run one after the other
				script.run(t, file, runningServer{address: os.Getenv("CARILLON_TRANSCRIPT_SERVER")})
				return
			}
			t.Parallel()
			script.run(t, file, start(t, script.options))
		})
	}
}

// runningServer is the server that transcripts run against.
type runningServer struct {
	address  string
	web      bool // that is its port for WebSocket
	lameDuck func() error
}

// transcriptServer returns the server to use. start is nil if one runs already. peer is its name in
// bracketed lines.
func transcriptServer(t *testing.T) (start func(*testing.T, map[string]string) runningServer, peer string) {
	switch server := os.Getenv("CARILLON_TRANSCRIPT_SERVER"); {
	case server == "":
		return startHub, "carillon"
	case strings.Contains(server, "/"):
		return func(t *testing.T, options map[string]string) runningServer { return startNATS(t, server, options) }, "nats-server"
	default:
		if _, _, err := net.SplitHostPort(server); err != nil {
			t.Fatalf("CARILLON_TRANSCRIPT_SERVER=%s is neither host:port nor a path: %v", server, err)
		}
		if dialTranscript(t, runningServer{address: server}).expectInfo(`{"cluster":null}`) != nil {
			return nil, "carillon" // a running carillon names its cluster; a single nats-server has none
		}
		return nil, "nats-server"
	}
}

// startHub runs this package's server with the options of a transcript until the test ends.
func startHub(t *testing.T, options map[string]string) runningServer {
	t.Helper()
	h, address := newTestHub(t, withOptions(t, options))
	return runningServer{address: address, lameDuck: lameDuckOf(h)}
}

// withOptions configures a hub as a transcript asks.
func withOptions(t *testing.T, options map[string]string) func(*session.Config) {
	return func(config *session.Config) {
		if one := (login.Single{User: options["user"], Password: options["password"], Token: options["token"]}); one.Given() {
			config.Auth = one
		}
		if path := options["users"]; path != "" {
			config.Auth = usersIn(t, path)
		}
		for name, value := range options {
			var err error
			switch name {
			case "user", "password", "token", "users":
			case "auth_timeout":
				config.AuthWait, err = time.ParseDuration(value)
			case "max_payload":
				config.Profile.Payload, err = strconv.Atoi(value)
			case "max_connections":
				config.Profile.Connections, err = strconv.Atoi(value)
			case "ping_interval":
				config.Ping, err = time.ParseDuration(value)
			case "ping_max":
				if value != strconv.Itoa(limits.PingsOutstanding) {
					err = fmt.Errorf("it is %d here", limits.PingsOutstanding)
				}
			default:
				err = fmt.Errorf("not known")
			}
			if err != nil {
				t.Fatalf("transcript: server option %s=%s: %v", name, value, err)
			}
		}
	}
}

func lameDuckOf(h *session.Hub) func() error {
	return func() error {
		// Cut short as soon as the clients are told: the first one would be sent away a second
		// later, and the transcript may be slower.
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := h.Leave(ctx, time.Minute); !errors.Is(err, context.Canceled) {
			return fmt.Errorf("it left: %w", err)
		}
		return nil
	}
}

// usersIn authenticates the users of a file.
func usersIn(t *testing.T, name string) *login.Login {
	t.Helper()
	table, err := (&login.File{Path: filepath.Join("testdata", "users", name+".json")}).Read()
	testutil.Must(t, err)
	l, err := login.New(table)
	testutil.Must(t, err)
	return l
}

type transcript struct {
	options map[string]string
	steps   []step
}

type step struct {
	line    int
	kind    byte // 'C' send, 'S' receive, '!' action
	clients []string
	raw     bool // C>: without CRLF
	any     bool // S?: in any order
	text    string
}

func (script *transcript) needsOwnServer() bool {
	return len(script.options) > 0 || slices.ContainsFunc(script.steps, func(s step) bool { return s.kind == '!' })
}

// sends reports whether the step is a complete line of that client. Consecutive ones are sent in
// one write.
func (s step) sends(client string) bool {
	return s.kind == 'C' && !s.raw && s.clients[0] == client
}

var (
	stepPattern   = regexp.MustCompile(`^([CS]\d+(?:\|[CS]\d+)*)(\?:|:|>)(?: (.*))?$`)
	peerPattern   = regexp.MustCompile(`^\[([a-z-]+)\] *(.*)$`)
	repeatPattern = regexp.MustCompile(`\{(.)\*(\d+)\}`)
)

func parseTranscript(text, peer string) (*transcript, error) {
	script := &transcript{options: map[string]string{}}
	for i, line := range strings.Split(text, "\n") {
		fail := func(why string) error { return fmt.Errorf("line %d: %s: %s", i+1, why, line) }
		if options, ok := strings.CutPrefix(line, "# server: "); ok {
			for _, option := range strings.Fields(options) {
				name, value, ok := strings.Cut(option, "=")
				if !ok {
					return nil, fail("an option is name=value")
				}
				script.options[name] = value
			}
			continue
		}
		if line == "" || line[0] == '#' {
			continue
		}
		if m := peerPattern.FindStringSubmatch(line); m != nil {
			if m[1] != "carillon" && m[1] != "nats-server" {
				return nil, fail("not a server that is known")
			}
			if m[1] != peer {
				continue
			}
			line = m[2]
		}
		if action, ok := strings.CutPrefix(line, "! "); ok {
			script.steps = append(script.steps, step{line: i + 1, kind: '!', text: action})
			continue
		}
		m := stepPattern.FindStringSubmatch(line)
		if m == nil {
			return nil, fail("not a line of a transcript")
		}
		clients := strings.Split(m[1], "|")
		s := step{line: i + 1, kind: clients[0][0], raw: m[2] == ">", any: m[2] == "?:", text: unescape(m[3])}
		for _, c := range clients {
			if c[0] != s.kind {
				return nil, fail("C and S mixed")
			}
			s.clients = append(s.clients, c[1:])
		}
		if s.kind == 'C' && (s.any || len(clients) > 1) || s.kind == 'S' && s.raw {
			return nil, fail("that makes no sense")
		}
		script.steps = append(script.steps, s)
	}
	if len(script.steps) == 0 {
		return nil, fmt.Errorf("nothing happens in it")
	}
	return script, nil
}

func unescape(s string) string {
	s = repeatPattern.ReplaceAllStringFunc(s, func(m string) string {
		f := repeatPattern.FindStringSubmatch(m)
		n, _ := strconv.Atoi(f[2])
		return strings.Repeat(f[1], n)
	})
	return strings.NewReplacer(`\\`, `\`, `\r`, "\r", `\n`, "\n", `\t`, "\t", `\0`, "\x00").Replace(s)
}

// patience is how long a transcript waits for the server. A passing test never waits that long.
const patience = testutil.Patience

func (script *transcript) run(t *testing.T, file string, server runningServer) {
	clients := map[string]*transcriptClient{}
	connect := func(name string, keepInfo bool) *transcriptClient {
		c := clients[name]
		if c == nil {
			c = dialTranscript(t, server)
			clients[name] = c
			if !keepInfo {
				if err := c.expectLine(`INFO {}`); err != nil {
					t.Fatalf("%s: client %s: %v", file, name, err)
				}
			}
		}
		return c
	}
	picked := map[string]*transcriptClient{} // receiver of consecutive S1|S2 lines
	for i := 0; i < len(script.steps); i++ {
		s := script.steps[i]
		var err error
		if len(s.clients) < 2 {
			clear(picked)
		}
		switch {
		case s.kind == '!':
			err = server.do(s.text)
		case s.kind == 'C' && s.raw:
			err = connect(s.clients[0], false).send(s.text)
			// The pause lets the server read these bytes alone. The outcome must not depend on it.
			time.Sleep(2 * time.Millisecond)
		case s.kind == 'C':
			text := s.text + "\r\n"
			for i+1 < len(script.steps) && script.steps[i+1].sends(s.clients[0]) {
				i++
				text += script.steps[i].text + "\r\n"
			}
			err = connect(s.clients[0], false).send(text)
		case s.any:
			block := []string{s.text}
			for i+1 < len(script.steps) && script.steps[i+1].any && script.steps[i+1].clients[0] == s.clients[0] {
				i++
				block = append(block, script.steps[i].text)
			}
			err = connect(s.clients[0], false).expectInAnyOrder(block)
		case len(s.clients) > 1:
			group := strings.Join(s.clients, "|")
			if picked[group] == nil {
				var all []*transcriptClient
				for _, name := range s.clients {
					all = append(all, connect(name, false))
				}
				picked[group], err = firstToReceive(all)
			}
			if err == nil {
				err = picked[group].expectLine(s.text)
			}
		default:
			err = connect(s.clients[0], strings.HasPrefix(s.text, "INFO ")).expectLine(s.text)
		}
		if err != nil {
			t.Fatalf("%s:%d: %v", file, s.line, err)
		}
	}
	for name, c := range clients {
		if c.ended {
			continue
		}
		if err := c.send("PING\r\n"); err != nil {
			t.Fatalf("%s: at the end, client %s: %v", file, name, err)
		}
		if err := c.expectLine("PONG"); err != nil {
			t.Fatalf("%s: at the end client %s should have received nothing more: %v", file, name, err)
		}
	}
}

func (s runningServer) do(action string) error {
	switch {
	case action == "lame duck" && s.lameDuck != nil:
		return s.lameDuck()
	default:
		return fmt.Errorf("the server cannot %s", action)
	}
}

// transcriptClient is one connection of a transcript. A goroutine reads everything that arrives.
// change is closed and replaced whenever there is more.
type transcriptClient struct {
	conn  net.Conn
	ended bool // the transcript has seen the end of the connection

	mu     sync.Mutex
	got    []byte
	err    error // why reading ended
	change chan struct{}
}

func dialTranscript(t *testing.T, server runningServer) *transcriptClient {
	t.Helper()
	conn, err := net.DialTimeout("tcp", server.address, patience)
	if err != nil {
		t.Fatalf("connect to the server: %v", err)
	}
	if server.web {
		conn = upgraded(t, conn)
	}
	c := &transcriptClient{conn: conn, change: make(chan struct{})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.read()
	}()
	t.Cleanup(func() {
		conn.Close()
		<-done
	})
	return c
}

func (c *transcriptClient) read() {
	buf := make([]byte, 64<<10)
	for {
		n, err := c.conn.Read(buf)
		c.mu.Lock()
		c.got = append(c.got, buf[:n]...)
		c.err = err
		close(c.change)
		c.change = make(chan struct{})
		c.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (c *transcriptClient) send(text string) error {
	if err := c.conn.SetWriteDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	_, err := c.conn.Write([]byte(text))
	return err
}

// wait calls ready with the unread input until it reports ok, and then removes n bytes.
func (c *transcriptClient) wait(ready func(got []byte, err error) (n int, ok bool)) bool {
	timeout := time.After(patience)
	for {
		c.mu.Lock()
		n, ok := ready(c.got, c.err)
		change := c.change
		if ok {
			c.got = c.got[n:]
		}
		ended := c.err != nil
		c.mu.Unlock()
		if ok || ended {
			return ok
		}
		select {
		case <-change:
		case <-timeout:
			return false
		}
	}
}

func (c *transcriptClient) expectLine(want string) error {
	if want == "(closed)" {
		return c.expectClosed()
	}
	if fields, ok := strings.CutPrefix(want, "INFO "); ok {
		return c.expectInfo(fields)
	}
	if !c.take([]byte(want + "\r\n")) {
		return fmt.Errorf("received %s, want %q", c.left(), want)
	}
	return nil
}

// take waits for exactly these bytes and removes them.
func (c *transcriptClient) take(want []byte) bool {
	matched := false
	c.wait(func(got []byte, _ error) (int, bool) {
		if len(got) < len(want) && bytes.HasPrefix(want, got) {
			return 0, false
		}
		if matched = bytes.HasPrefix(got, want); matched {
			return len(want), true
		}
		return 0, true
	})
	return matched
}

func (c *transcriptClient) expectClosed() error {
	clean := false
	c.wait(func(got []byte, err error) (int, bool) {
		clean = len(got) == 0 && err != nil
		return 0, len(got) > 0 || err != nil
	})
	if !clean {
		return fmt.Errorf("received %s, want the end of the connection", c.left())
	}
	c.ended = true
	return nil
}

func (c *transcriptClient) expectInfo(fields string) error {
	var line []byte
	if !c.wait(func(got []byte, _ error) (int, bool) {
		end := bytes.IndexByte(got, '\n') + 1
		line = bytes.Clone(got[:end])
		return end, end > 0
	}) {
		return fmt.Errorf("received %s, want INFO", c.left())
	}
	text, ok := bytes.CutPrefix(line, []byte("INFO "))
	if !ok {
		return fmt.Errorf("received %q, want INFO", line)
	}
	var got, want map[string]any
	if err := json.Unmarshal(text, &got); err != nil {
		return fmt.Errorf("received %q: %w", line, err)
	}
	if err := json.Unmarshal([]byte(fields), &want); err != nil {
		return fmt.Errorf("transcript: %q: %w", fields, err)
	}
	for name, value := range want {
		if !reflect.DeepEqual(got[name], value) {
			return fmt.Errorf("received %q, in which %s is %v, want %v", line, name, got[name], value)
		}
	}
	return nil
}

// expectInAnyOrder reads messages: a control line each, followed by the payload line.
func (c *transcriptClient) expectInAnyOrder(lines []string) error {
	var frames []string
	for i := 0; i < len(lines); i++ {
		frame := lines[i] + "\r\n"
		if strings.HasPrefix(frame, "MSG ") && i+1 < len(lines) {
			i++
			frame += lines[i] + "\r\n"
		}
		frames = append(frames, frame)
	}
	for len(frames) > 0 {
		found := -1
		c.wait(func(got []byte, _ error) (int, bool) {
			possible := false
			for i, f := range frames {
				if bytes.HasPrefix(got, []byte(f)) {
					found = i
					return len(f), true
				}
				possible = possible || strings.HasPrefix(f, string(got))
			}
			return 0, !possible
		})
		if found < 0 {
			return fmt.Errorf("received %s, want one of %q", c.left(), frames)
		}
		frames = append(frames[:found], frames[found+1:]...)
	}
	return nil
}

// firstToReceive waits until one of the clients has received something.
func firstToReceive(clients []*transcriptClient) (*transcriptClient, error) {
	timeout := time.After(patience)
	for {
		cases := []reflect.SelectCase{{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(timeout)}}
		for _, c := range clients {
			c.mu.Lock()
			some, change := len(c.got) > 0, c.change
			c.mu.Unlock()
			if some {
				return c, nil
			}
			cases = append(cases, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(change)})
		}
		if i, _, _ := reflect.Select(cases); i == 0 {
			return nil, fmt.Errorf("none of %d clients received anything", len(clients))
		}
	}
}

// left returns what was received and not expected.
func (c *transcriptClient) left() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	text := fmt.Sprintf("%.300q", c.got)
	if c.err != nil {
		text += fmt.Sprintf(" and the end (%v)", c.err)
	}
	return text
}
