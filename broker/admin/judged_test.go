package admin

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/carillon-mq/carillon/broker/filter"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// judged returns the records of an answer with a condition, by their offsets, and its headers.
func (n *node) judged(reply string) (records map[uint64]string, headers map[string]string) {
	n.Helper()
	m := n.answer(reply)
	header, rest := protocol.SplitData(m.Data, m.Header)
	records, headers = map[uint64]string{}, map[string]string{}
	for key, value := range header.All() {
		headers[string(key)] = string(value)
	}
	var offset uint64
	if _, err := fmt.Sscan(headers["Carillon-Offset"], &offset); err != nil || headers["Carillon-Gaps"] != "1" {
		n.Fatalf("%.200q: %v", m.Data, err)
	}
	for ; len(rest) > 0; offset++ {
		gap, k := binary.Uvarint(rest)
		size, l := binary.Uvarint(rest[k:])
		offset += gap
		rest = rest[k+l:]
		records[offset], rest = string(rest[:size]), rest[size:]
	}
	if headers["Carillon-Records"] != fmt.Sprint(len(records)) {
		n.Fatalf("%d records under %q", len(records), header)
	}
	return records, headers
}

// TestRecordsAreJudgedByTheBroker: only those that match come, with how many were looked at, and
// why some could not be judged.
func TestRecordsAreJudgedByTheBroker(t *testing.T) {
	n := startNode(t, nil)
	n.publish(`{"total":1}`, `{"total":200}`, "no JSON", `{"total":300}`, `{"region":"eu"}`)
	n.publish(`{"total":400}`)
	for _, c := range []struct {
		payload, want, next, examined, unjudged, why string
	}{
		{`{"where":"json.total > 100"}`, "2 4 6", "7", "6", "2", "the payload is no JSON"},
		{`{"where":"json.total > 100","offset":4}`, "4 6", "7", "3", "1", "no such key: total"},
		{`{"where":"json.total > 100","max_records":1}`, "2", "3", "2", "0", ""},
		{`{"where":"json.total > 100","max_bytes":16}`, "2", "4", "3", "1", "the payload is no JSON"},
		{`{"where":"json.total > 100","end":4}`, "2", "4", "3", "1", "the payload is no JSON"},
		{`{"where":"json.total > 100","subjects":["bills","orders.>"]}`, "", "7", "6", "0", ""},
		{`{"subjects":["orders"],"offset":5}`, "5 6", "7", "2", "0", ""},
		{`{"where":"false","offset":7}`, "", "7", "0", "0", ""},
	} {
		got, headers := n.judged(n.ask(ordersSubject, c.payload, false))
		var offsets []string
		for offset := range uint64(10) {
			if got[offset] != "" {
				offsets = append(offsets, fmt.Sprint(offset))
			}
		}
		if strings.Join(offsets, " ") != c.want || headers["Carillon-Next"] != c.next || headers["Carillon-High"] != "7" ||
			headers["Carillon-Examined"] != c.examined || headers["Carillon-Unjudged"] != c.unjudged || headers["Carillon-Unjudged-Why"] != c.why ||
			(headers["Carillon-Latest"] == "") != (c.examined == "0") {
			t.Errorf("%s: %v %v", c.payload, got, headers)
		}
	}
	for payload, want := range map[string]string{
		`{"where":"json.total >"}`:         "where: filter",
		`{"where":"json.total"}`:           "",
		`{"where":"1"}`:                    "it is a int, and not a condition",
		`{"where":"attribute.a == 'b'"}`:   "undeclared reference",
		`{"attributes":true}`:              "without the form full",
		`{"subjects":["a..b"]}`:            `"a..b" in subjects is no subject`,
		`{"end":3}`:                        "without where and subjects",
		`{"where":["json.total > 100.0"]}`: "cannot unmarshal",
	} {
		reply := n.ask(ordersSubject, payload, false)
		if want == "" {
			n.judged(reply)
		} else if got := n.refusal(reply); got.Code != BadRequest || !strings.Contains(got.Text, want) {
			t.Errorf("%s: %+v", payload, got)
		}
	}
}

// TestAJudgedRequestWaitsForRecords: it is answered once there are new ones, also if none matches.
func TestAJudgedRequestWaitsForRecords(t *testing.T) {
	n := startNode(t, nil)
	n.publish(`{"total":1}`)
	reply := n.ask(ordersSubject, `{"where":"json.total > 100","offset":2,"wait_ms":30000}`, false)
	testutil.EventuallyTrue(t, "it waits", func() bool {
		n.server.polls.mu.Lock()
		defer n.server.polls.mu.Unlock()
		return n.server.polls.shares.Len() == 1
	})
	n.publish(`{"total":2}`)
	if got, headers := n.judged(reply); len(got) != 0 || headers["Carillon-Examined"] != "1" || headers["Carillon-Next"] != "3" {
		t.Errorf("%v %v", got, headers)
	}
}

// TestJudgingHoldsUpNoOtherReads: while all that judge are busy, and others wait for these,
// requests without a condition are answered.
func TestJudgingHoldsUpNoOtherReads(t *testing.T) {
	n := startNode(t, nil)
	n.publish(`{"total":200}`)
	for range cap(n.server.judging) {
		n.server.judging <- struct{}{}
	}
	goOn := sync.OnceFunc(func() {
		for range cap(n.server.judging) {
			<-n.server.judging
		}
	})
	defer goOn()
	n.server.Accounts(ownAccounts)
	var waiting []string
	for i := range judgesAtOnce + judgesQueued {
		client := uint64(1)
		if i < judgesAtOnce { // one of as many users as there are goroutines
			client = uint64(10 + i)
		}
		waiting = append(waiting, n.askAs(client, ordersSubject, `{"where":"json.total > 100"}`, false))
	}
	if got := n.refusal(n.askAs(1, ordersSubject, `{"where":"json.total > 100"}`, false)); got.Code != Busy || !strings.Contains(got.Text, "8 are served, 256 wait") {
		t.Errorf("%+v", got)
	}
	if got, _ := n.records(n.askAs(2, ordersSubject, "", false)); len(got) != 1 {
		t.Errorf("%q", got)
	}
	other := n.askAs(2, ordersSubject, `{"where":"json.total > 100"}`, false)
	if got := n.refusal(waiting[len(waiting)-1]); got.Code != Busy {
		t.Errorf("%+v", got)
	}
	goOn()
	for _, reply := range append(waiting[:len(waiting)-1], other) {
		if got, _ := n.judged(reply); len(got) != 1 {
			t.Errorf("%v", got)
		}
	}
}

// TestNothingIsJudgedForAClientThatHasGone: requests that waited for their turn meanwhile are not
// served.
func TestNothingIsJudgedForAClientThatHasGone(t *testing.T) {
	n := startNode(t, nil)
	n.publish(`{"total":200}`)
	n.mu.Lock()
	n.gone = map[string]bool{fmt.Sprint("_INBOX.", n.asked+1): true}
	n.mu.Unlock()
	reply := n.ask(ordersSubject, `{"where":"json.total > 100"}`, false)
	n.server.judges.close()
	if n.answered(reply) || n.server.conditions.of != nil {
		t.Error("it was served")
	}
}

// TestConditionsAreKeptWithinABound: the last ones that were used are compiled once, and all take a
// bounded memory.
func TestConditionsAreKeptWithinABound(t *testing.T) {
	var c conditions
	get := func(text string) *filter.Filter {
		f, err := c.get(text)
		testutil.Must(t, err)
		return f
	}
	first := get("json.a == 0")
	for n := range 3 * mostConditions {
		get(fmt.Sprintf("json.a == %d", n))
		if get("json.a == 0") != first {
			t.Fatal("it was compiled again")
		}
	}
	if len(c.of) != mostConditions || c.of[len(c.of)-1] != first {
		t.Errorf("%d are kept", len(c.of))
	}
	long := strings.Repeat(" ", 4000)
	for n := range mostConditions {
		get(fmt.Sprintf("json.b == %d%s", n, long))
	}
	bytes := 0
	for _, f := range c.of {
		bytes += f.Bytes()
	}
	if bytes != c.bytes || bytes > mostConditionBytes || slices.Contains(c.of, first) {
		t.Errorf("%d bytes are kept, and %d are counted", bytes, c.bytes)
	}
	if _, err := c.get("json.a =="); err == nil {
		t.Error("no error")
	}
}
